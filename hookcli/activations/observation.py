"""From what was seen inside the hooks to records: the way from the device to plain numbers."""

from __future__ import annotations

import math
import struct
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from hookcli.records.layer_records import ChannelRange, LayerRecord, TensorStats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.activations.stats import Row, RowStats
    from hookcli.records.calls import Call
    from hookcli.records.layouts import Layout

    _Figures: TypeAlias = tuple[Row, ChannelRange | None, bytes]

_SAMPLE, _BINS = 4096, 24


@dataclass(frozen=True, slots=True)
class Observation:
    """One tensor as it was seen inside a hook.

    Attributes:
        call: which tensor of which call.
        layout: what its axes mean.
        shape: one image's part, ``(1, …)``, or the whole tensor where it cannot be divided.
        dtype: as torch names it.
        reduced: its figures, a row an image; one row is every image's.
        sample: (rows, S) some of its values; None when none were asked for.
        change: (rows,) how far each is from the run without edits; None without edits.
        sketch: (rows, 67); None when none were asked for.
    """

    call: Call
    layout: Layout
    shape: tuple[int, ...]
    dtype: torch.dtype
    reduced: RowStats
    sample: Tensor | None = None
    change: Tensor | None = None
    sketch: Tensor | None = None


def read_records(seen: Sequence[Observation], images: Sequence[str]) -> tuple[LayerRecord, ...]:
    """Records in plain numbers, image by image; the figures come to the host in one transfer."""
    figures = _to_host(seen)
    return tuple(
        _read_record(observed, image, index if len(rows) > 1 else 0, rows)
        for index, image in enumerate(images)
        for observed, rows in zip(seen, figures, strict=True)
    )


def _to_host(seen: Sequence[Observation]) -> list[list[_Figures]]:
    """The rows of every tensor, each with its channels and sketch, brought to the host in one transfer."""
    tensors = [
        tensor
        for each in seen
        for tensor in (each.reduced.table, each.reduced.low, each.reduced.high, each.sketch)
        if isinstance(tensor, Tensor)
    ]
    brought = _transfer(tensors)
    figures = []
    for each in seen:
        reduced = each.reduced
        table = next(brought) if isinstance(reduced.table, Tensor) else reduced.table
        channels: Sequence[ChannelRange | None] = [None] * len(table)
        if reduced.low is not None and reduced.high is not None:
            channels = list(map(ChannelRange, next(brought), next(brought)))
        sketches = [b""] * len(table)
        if each.sketch is not None:
            sketches = [struct.pack(f"<{len(row)}f", *row) for row in next(brought)]
        figures.append(list(zip(table, channels, sketches, strict=True)))
    return figures


def _transfer(tensors: Sequence[Tensor]) -> Iterator[list[array[float]]]:
    """The rows of each of ``tensors``, (rows, n), on the host: all of them in one transfer."""
    if not tensors:
        return
    together = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu()
    values = array("d", together.numpy().tobytes())
    start = 0
    for tensor in tensors:
        end, width = start + tensor.numel(), tensor.shape[1]
        yield [values[at : at + width] for at in range(start, end, width)]
        start = end


def _read_record(
    observed: Observation, image: str, row: int, rows: Sequence[_Figures]
) -> LayerRecord:
    figures, channels, sketch = rows[row]
    mean, std, low, high, zeros, nans, infs = figures
    numel = math.prod(observed.shape) * (2 if observed.dtype.is_complex else 1)
    finite = numel - nans - infs > 0
    stats = TensorStats(
        shape=observed.shape,
        dtype=str(observed.dtype).removeprefix("torch."),
        mean=mean if finite else None,
        std=std if finite else None,
        min=low if finite else None,
        max=high if finite else None,
        zero_fraction=zeros / numel if numel else None,
        nan_count=int(nans),
        inf_count=int(infs),
    )
    change = None if observed.change is None else float(observed.change[row])
    record = LayerRecord(
        image, observed.call, observed.layout, stats, channels, change=change, sketch=sketch
    )
    if observed.sample is None or not finite:
        return record
    return replace(record, histogram=_count_bins(observed.sample[row], low, high))


def take_sample(rows: Tensor) -> Tensor:
    """(rows, at most 4,096) values at even distances of each row, copied, where they are."""
    flat = rows.dequantize() if rows.is_quantized else rows
    flat = flat.reshape(len(rows), -1)  # a row can be one number, without an axis of its own
    flat = torch.view_as_real(flat).flatten(1) if flat.is_complex() else flat
    step = max(1, -(-flat.shape[1] // _SAMPLE))
    return flat[:, ::step].to(torch.float32, copy=True)


def _count_bins(sample: Tensor, low: float, high: float) -> tuple[int, ...]:
    values = sample.cpu()
    values = values[values.isfinite()]
    if low == high or not len(values):
        return (len(values),)
    counts = torch.histc(values.double(), _BINS, low, high)
    return tuple(int(count) for count in counts.tolist())
