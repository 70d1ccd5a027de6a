"""Copy the figures that hooks computed to the host in one transfer, and make records of them."""

from __future__ import annotations

import math
import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from hookcli.activations.stats import as_real
from hookcli.records.layer_records import ChannelRange, LayerRecord, TensorStats
from hookcli.records.statistics import OVER, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.activations.stats import RowStats
    from hookcli.records.calls import Call
    from hookcli.records.layouts import Layout

    _Figures: TypeAlias = tuple[Sequence[float], ChannelRange | None, bytes]

_SAMPLE, _BINS = 4096, 24


@dataclass(frozen=True, slots=True)
class Observation:
    call: Call
    layout: Layout
    shape: tuple[int, ...]  # of one image's part, ``(1, …)``, or of the whole tensor
    dtype: torch.dtype
    reduced: RowStats  # a row per image, or one for all images
    sample: Tensor | None = None  # (rows, S)
    change: Tensor | None = None  # relative to the run without edits, (rows,)
    sketch: Tensor | None = None  # (rows, 67)


def read_records(seen: Sequence[Observation], images: Sequence[str]) -> tuple[LayerRecord, ...]:
    figures = _to_host(seen)
    return tuple(
        _read_record(observed, image, index if len(rows) > 1 else 0, rows)
        for index, image in enumerate(images)
        for observed, rows in zip(seen, figures, strict=True)
    )


def _to_host(seen: Sequence[Observation]) -> list[list[_Figures]]:
    known = ((r.reduced.table, r.reduced.low, r.reduced.high, r.sketch) for r in seen)
    brought = _transfer([each for parts in known for each in parts if isinstance(each, Tensor)])
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
    """Copy tensors (rows, n) to the host in one transfer, and yield the rows of each tensor."""
    if not tensors:
        return
    together = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu()
    values = array("d", together.numpy().tobytes())
    start = 0
    for tensor in tensors:
        end, width = start + tensor.numel(), tensor.shape[1]
        yield [values[at : at + width] for at in range(start, end, width)]
        start = end


def _read_record(seen: Observation, image: str, row: int, rows: Sequence[_Figures]) -> LayerRecord:
    figures, channels, sketch = rows[row]
    stats = _read_stats(seen, dict(zip(STATISTICS, figures, strict=True)))
    change = None if seen.change is None else float(seen.change[row])
    histogram: tuple[int, ...] = ()
    if seen.sample is not None and stats.min is not None and stats.max is not None:
        histogram = _count_bins(seen.sample[row], stats.min, stats.max)
    return LayerRecord(
        image,
        seen.call,
        seen.layout,
        stats=stats,
        channels=channels,
        histogram=histogram,
        change=change,
        sketch=sketch,
    )


def _read_stats(observed: Observation, figures: Mapping[str, float]) -> TensorStats:
    numel = math.prod(observed.shape)
    sizes = {"numel": numel, "finite": numel - figures["nan_count"] - figures["inf_count"]}
    known: dict[str, Any] = {
        name: int(figures[name]) if each.unit == "count" else figures[name]
        for name, each in STATISTICS.items()
        if sizes[OVER[each.unit]]
    }
    dtype = str(observed.dtype).removeprefix("torch.")
    return TensorStats(shape=observed.shape, dtype=dtype, **known)


def take_sample(rows: Tensor) -> Tensor:
    """Copy up to 4,096 evenly spaced values of each row as float32 (rows, S) on the same device."""
    flat = as_real(rows).reshape(len(rows), -1)  # a row can be a single number, without an axis
    step = max(1, -(-flat.shape[1] // _SAMPLE))
    return flat[:, ::step].to(torch.float32, copy=True)


def _count_bins(sample: Tensor, low: float, high: float) -> tuple[int, ...]:
    values = sample.cpu()
    values = values[values.isfinite()]
    if low == high or not len(values):
        return (len(values),)
    return tuple(int(count) for count in torch.histc(values.double(), _BINS, low, high).tolist())
