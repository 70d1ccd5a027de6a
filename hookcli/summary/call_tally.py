"""Sum up the records of one call over many images, and make the call's row of ``layers.csv``."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hookcli.records.calls import Call
from hookcli.records.layouts import INFERRED, Layout
from hookcli.records.rows import LayerRow
from hookcli.records.runs import MOST_NAMED
from hookcli.records.statistics import TotalStats, figures_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.records.layer_records import LayerRecord


@dataclass(slots=True)
class RuleHit:
    number: float = 0.0  # the largest of the images' numbers; for ``nan`` and ``inf``, their sum
    images: list[str] = field(default_factory=list)  # the keys of the images, at most the first 200
    against: str = ""  # the id of the call that the rule compared with this one

    def merge(self, other: RuleHit, *, adds: bool) -> None:
        self.images = (self.images + other.images)[:MOST_NAMED]
        if adds:
            self.number += other.number
        elif other.number > self.number:
            self.number, self.against = other.number, other.against


@dataclass(slots=True)
class CallTally:
    """The statistics of one call over the images so far.

    ``layout``, ``shape``, ``dtype``, ``histogram`` and ``channels`` (how many) describe the first
    image. ``low`` and ``high`` are each channel's smallest and largest value, as bytes of float64;
    they are None without a channel axis, or if the number of channels varies.
    """

    call: Call
    layout: Layout
    shape: tuple[int, ...]
    dtype: str
    histogram: tuple[int, ...] = ()
    images: int = 0
    stats: TotalStats = field(default_factory=TotalStats)
    low: bytes | None = None
    high: bytes | None = None
    channels: int | None = None
    hits: dict[str, RuleHit] = field(default_factory=dict)  # by rule
    changes: float | None = None  # the sum of the squares of the images' changes
    reason: str = ""  # why the first missing gradient is missing

    def merge(self, other: CallTally) -> None:
        self.stats = self.stats.merge(other.stats)
        self.low = _merge_channels(self.low, other.low, np.minimum)
        self.high = _merge_channels(self.high, other.high, np.maximum)
        self.images += other.images
        if other.changes is not None:
            self.changes = (self.changes or 0.0) + other.changes
        self.reason = self.reason or other.reason
        for rule, hit in other.hits.items():
            self.hit(rule, hit)

    def hit(self, rule: str, hit: RuleHit) -> None:
        known = self.hits.setdefault(rule, RuleHit(0.0, [], hit.against))
        known.merge(hit, adds=rule in ("nan", "inf"))

    def ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        if self.low is None or self.high is None:
            return None
        return np.frombuffer(self.low), np.frombuffer(self.high)

    def row(self, sparsity: float | None = None, weight: float | None = None) -> LayerRow:
        # ``sparsity`` is the share of zeros in the weight of a pruned layer, ``weight`` the norm of
        # the parameter whose gradient the row describes.
        call, stats = self.call, self.stats
        ranges = self.ranges()
        dead = None if ranges is None else int(((ranges[0] == 0) & (ranges[1] == 0)).sum())
        norm = None
        if stats.mean is not None and stats.std is not None:
            norm = math.sqrt(stats.finite * (stats.mean**2 + stats.std**2) / self.images)
        return LayerRow(
            order=call.order,
            call_id=call.id,
            module_path=call.layer.module_path,
            module_type=call.layer.module_type,
            call_index=call.call_index,
            side=call.side,
            output_key=call.output_key,
            shape=self.shape,
            dtype=self.dtype,
            layout=self.layout.name,
            **figures_of(stats),
            dead_channels=dead,
            channels=self.channels,
            images=self.images,
            params=call.layer.params,
            norm=norm,
            ratio=norm / weight if norm is not None and weight else None,
            change=None if self.changes is None else math.sqrt(self.changes / self.images),
            sparsity=sparsity,
            reason=self.reason,
            layout_note=INFERRED * self.layout.inferred,
            target=call.target,
        )


def tally_of(record: LayerRecord) -> CallTally:
    stats, channels = record.stats, record.channels
    return CallTally(
        call=record.call,
        layout=record.layout,
        shape=stats.shape,
        dtype=stats.dtype,
        histogram=record.histogram,
        images=1,
        stats=TotalStats(**figures_of(stats), numel=0 if record.reason else stats.numel),
        low=None if channels is None else array("d", channels.low).tobytes(),
        high=None if channels is None else array("d", channels.high).tobytes(),
        channels=None if channels is None else len(channels.low),
        changes=None if record.change is None else record.change**2,
        reason=record.reason,
    )


def _merge_channels(one: bytes | None, two: bytes | None, merge: np.ufunc) -> bytes | None:
    if one is None or two is None or len(one) != len(two):
        return None
    merged: NDArray[np.float64] = merge(np.frombuffer(one), np.frombuffer(two))
    return merged.tobytes()
