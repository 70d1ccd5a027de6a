"""Records of several images put together: one row a layer call and output, exact over images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records import LayerRecord


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One row of ``layers.csv``, and one of ``layers`` in the JSON document.

    ``mean`` and ``std`` (population) are over all finite values of all images, ``min`` and ``max``
    too, ``zero_fraction`` over all values; ``dead_channels`` counts the channels that are zero
    everywhere in all images, of ``channels``, both None without a channel axis. ``shape`` is one
    image's; where images differ it is the first one's.
    """

    order: int
    call_id: str
    module_path: str
    module_type: str
    call_index: int
    side: str
    output_key: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zero_fraction: float | None
    nan_count: int
    inf_count: int
    dead_channels: int | None
    channels: int | None
    images: int
    params: int


def aggregate_layers(records: Iterable[LayerRecord]) -> tuple[LayerRow, ...]:
    """One row a layer call and output, in the order in which the calls started."""
    groups: dict[tuple[str, str], list[LayerRecord]] = {}
    for record in records:
        groups.setdefault((record.call.id, record.call.side), []).append(record)
    rows = [_row(group) for group in groups.values()]
    return tuple(sorted(rows, key=lambda row: (row.order, row.side)))


def _row(group: Sequence[LayerRecord]) -> LayerRow:
    first = group[0]
    call, stats = first.call, first.stats
    mean, std = _moments(group)
    numel = sum(record.stats.numel for record in group)
    zeros = sum((r.stats.zero_fraction or 0) * r.stats.numel for r in group)
    lows = [r.stats.min for r in group if r.stats.min is not None]
    highs = [r.stats.max for r in group if r.stats.max is not None]
    dead = [record.channels.dead() for record in group if record.channels is not None]
    return LayerRow(
        order=call.order,
        call_id=call.id,
        module_path=call.layer.module_path,
        module_type=call.layer.module_type,
        call_index=call.call_index,
        side=call.side,
        output_key=call.output_key,
        shape=stats.shape,
        dtype=stats.dtype,
        layout=first.layout.name,
        mean=mean,
        std=std,
        min=min(lows, default=None),
        max=max(highs, default=None),
        zero_fraction=zeros / numel if numel else None,
        nan_count=sum(record.stats.nan_count for record in group),
        inf_count=sum(record.stats.inf_count for record in group),
        dead_channels=len(frozenset.intersection(*dead)) if dead else None,
        channels=None if first.channels is None else len(first.channels.low),
        images=len(group),
        params=call.layer.params,
    )


def _moments(group: Sequence[LayerRecord]) -> tuple[float | None, float | None]:
    """Mean and population standard deviation of all finite values of all images together."""
    parts = []
    for record in group:
        stats = record.stats
        if stats.mean is not None and stats.std is not None:
            parts.append((stats.numel - stats.nan_count - stats.inf_count, stats.mean, stats.std))
    if len(parts) <= 1:
        return (parts[0][1], parts[0][2]) if parts else (None, None)
    total = sum(count for count, _, _ in parts)
    mean = math.fsum(count * mean for count, mean, _ in parts) / total
    square = math.fsum(count * (std**2 + (part - mean) ** 2) for count, part, std in parts) / total
    return mean, math.sqrt(square)
