"""The figures of one call over images, in constant memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hookcli.records.calls import Call
from hookcli.records.layouts import Layout
from hookcli.records.rows import LayerRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.records.layer_records import LayerRecord

MOST_NAMED = 200  # images that a sign names


@dataclass(slots=True)
class RuleHit:
    """Something about a call that goes beyond a rule's threshold in some images.

    Attributes:
        number: the largest of them; for NaN and Inf the sum.
        images: the keys of the first 200.
        against: the call that it was measured against.
    """

    number: float = 0.0
    images: list[str] = field(default_factory=list)
    against: str = ""

    def merge(self, other: RuleHit, *, adds: bool) -> None:
        """Take over what later images show."""
        self.images = (self.images + other.images)[:MOST_NAMED]
        if adds:
            self.number += other.number
        elif other.number > self.number:
            self.number, self.against = other.number, other.against


@dataclass(slots=True)
class CallTally:
    """The figures of one call over the images so far.

    Attributes:
        call: which tensor of which call; with ``layout``, ``shape``, ``dtype`` and ``histogram`` of the
            first image.
        images: how many.
        numel: values of all images; ``finite``, ``zeros``, ``nans`` and ``infs`` are of these.
        mean: of the finite ones, as ``std`` (population), ``min`` and ``max`` are.
        low: smallest value of each channel, as float64 bytes; None without channels, or when images differ
            in their number.
        high: largest value of each channel.
        channels: how many the first image has.
        signs: by rule.
        changes: sum of the squares of how far the images are from the run without edits; None without one.
        reason: why an image has no gradient, of the first that has none.
    """

    call: Call
    layout: Layout
    shape: tuple[int, ...]
    dtype: str
    histogram: tuple[int, ...] = ()
    images: int = 0
    numel: int = 0
    finite: int = 0
    zeros: int = 0
    nans: int = 0
    infs: int = 0
    mean: float = 0.0
    std: float = 0.0
    min: float = math.inf
    max: float = -math.inf
    low: bytes | None = None
    high: bytes | None = None
    channels: int | None = None
    signs: dict[str, RuleHit] = field(default_factory=dict)
    changes: float | None = None
    reason: str = ""

    def merge(self, other: CallTally) -> None:
        """Take over the figures of later images."""
        self._merge_moments(other)
        self.low = _merge_channels(self.low, other.low, np.minimum)
        self.high = _merge_channels(self.high, other.high, np.maximum)
        self.min, self.max = min(self.min, other.min), max(self.max, other.max)
        self.images += other.images
        self.numel += other.numel
        self.zeros += other.zeros
        self.nans += other.nans
        self.infs += other.infs
        if other.changes is not None:
            self.changes = (self.changes or 0.0) + other.changes
        self.reason = self.reason or other.reason
        for rule, sign in other.signs.items():
            self.sign(rule, sign)

    def _merge_moments(self, other: CallTally) -> None:
        """Take over the mean and standard deviation of later images, and how many values they are of."""
        if not other.finite:
            return
        total = self.finite + other.finite
        mean, std = other.mean, other.std
        if self.finite:
            mean = (self.finite * self.mean + other.finite * other.mean) / total
            squares = sum(
                part.finite * (part.std**2 + (part.mean - mean) ** 2) for part in (self, other)
            )
            std = math.sqrt(squares / total)
        self.finite, self.mean, self.std = total, mean, std

    def sign(self, rule: str, sign: RuleHit) -> None:
        """Note that a rule's threshold was passed."""
        known = self.signs.setdefault(rule, RuleHit(0.0, [], sign.against))
        known.merge(sign, adds=rule in ("nan", "inf"))

    def ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """(C,) smallest and (C,) largest values over all images; None where they are not known."""
        if self.low is None or self.high is None:
            return None
        return np.frombuffer(self.low), np.frombuffer(self.high)

    def row(self) -> LayerRow:
        """The row of ``layers.csv``."""
        call, finite = self.call, self.finite > 0
        ranges = self.ranges()
        dead = None if ranges is None else int(((ranges[0] == 0) & (ranges[1] == 0)).sum())
        norm = math.sqrt(self.finite * (self.mean**2 + self.std**2) / self.images)
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
            mean=self.mean if finite else None,
            std=self.std if finite else None,
            min=self.min if finite else None,
            max=self.max if finite else None,
            zero_fraction=self.zeros / self.numel if self.numel else None,
            nan_count=self.nans,
            inf_count=self.infs,
            dead_channels=dead,
            channels=self.channels,
            images=self.images,
            params=call.layer.params,
            norm=norm if finite else None,
            change=None if self.changes is None else math.sqrt(self.changes / self.images),
            reason=self.reason,
        )


def tally_of(record: LayerRecord) -> CallTally:
    """The figures of one image."""
    stats, channels = record.stats, record.channels
    finite = stats.mean is not None and stats.std is not None
    tally = CallTally(
        call=record.call,
        layout=record.layout,
        shape=stats.shape,
        dtype=stats.dtype,
        histogram=record.histogram,
        images=1,
        numel=0 if record.reason else stats.numel,
        finite=stats.numel - stats.nan_count - stats.inf_count if finite else 0,
        zeros=round((stats.zero_fraction or 0) * stats.numel),
        nans=stats.nan_count,
        infs=stats.inf_count,
        mean=stats.mean or 0.0,
        std=stats.std or 0.0,
        changes=None if record.change is None else record.change**2,
        reason=record.reason,
    )
    if stats.min is not None and stats.max is not None:
        tally.min, tally.max = stats.min, stats.max
    if channels is not None:
        tally.low, tally.high = (
            np.array(v, np.float64).tobytes() for v in (channels.low, channels.high)
        )
        tally.channels = len(channels.low)
    return tally


def _merge_channels(one: bytes | None, two: bytes | None, merge: np.ufunc) -> bytes | None:
    if one is None or two is None or len(one) != len(two):
        return None
    merged: NDArray[np.float64] = merge(np.frombuffer(one), np.frombuffer(two))
    return merged.tobytes()
