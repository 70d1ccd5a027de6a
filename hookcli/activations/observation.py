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
    from collections.abc import Sequence

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
    parts = [(each.reduced, each.sketch) for each in seen]
    held = [
        tensor
        for reduced, sketch in parts
        for tensor in (reduced.table, reduced.low, reduced.high, sketch)
        if isinstance(tensor, Tensor)
    ]
    flat = (
        torch.cat([tensor.flatten().double() for tensor in held]).cpu() if held else torch.empty(0)
    )
    values = array("d", flat.numpy().tobytes())
    start = 0

    def rows_of(tensor: Tensor) -> list[array[float]]:
        nonlocal start
        first, width = start, tensor.shape[1]
        start += tensor.numel()
        return [values[at : at + width] for at in range(first, start, width)]

    figures = []
    for part, sketch in parts:
        table = rows_of(part.table) if isinstance(part.table, Tensor) else part.table
        channels: Sequence[ChannelRange | None] = [None] * len(table)
        if part.low is not None and part.high is not None:
            channels = list(map(ChannelRange, rows_of(part.low), rows_of(part.high)))
        sketches = [b""] * len(table)
        if sketch is not None:
            sketches = [struct.pack(f"<{len(row)}f", *row) for row in rows_of(sketch)]
        figures.append(list(zip(table, channels, sketches, strict=True)))
    return figures


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
