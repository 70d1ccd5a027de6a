"""Records of many images put together as they come: the figures of a call in constant memory.

A tally of some images can be merged with that of the images after them; the same images in the same
parts give the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hookcli.records import Call, LayerRecord, Layout
from hookcli.results import LayerRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

MOST_NAMED = 200  # images that a sign names
FLOAT16_LARGEST = 65504.0
_PASSING = ("Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth")


@dataclass(slots=True)
class Sign:
    """Something about a call that goes beyond a rule's threshold in some images.

    Attributes:
        number: the largest of them; for NaN and Inf the sum.
        images: the keys of the first 200.
        against: the call that it was measured against.
    """

    number: float = 0.0
    images: list[str] = field(default_factory=list)
    against: str = ""

    def merge(self, other: Sign, *, adds: bool) -> None:
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
    signs: dict[str, Sign] = field(default_factory=dict)

    def merge(self, other: CallTally) -> None:
        """Take over the figures of later images."""
        if other.finite:
            total = self.finite + other.finite
            mean, std = self.mean, self.std
            if self.finite:
                mean = (self.finite * self.mean + other.finite * other.mean) / total
                squares = sum(
                    part.finite * (part.std**2 + (part.mean - mean) ** 2) for part in (self, other)
                )
                std = math.sqrt(squares / total)
            else:
                mean, std = other.mean, other.std
            self.finite, self.mean, self.std = total, mean, std
        self.low = _merge_channels(self.low, other.low, np.minimum)
        self.high = _merge_channels(self.high, other.high, np.maximum)
        self.min, self.max = min(self.min, other.min), max(self.max, other.max)
        for name in ("images", "numel", "zeros", "nans", "infs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for rule, sign in other.signs.items():
            self.sign(rule, sign)

    def sign(self, rule: str, sign: Sign) -> None:
        """Note that a rule's threshold was passed."""
        known = self.signs.setdefault(rule, Sign(0.0, [], sign.against))
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
        )


@dataclass(slots=True)
class Tally:
    """All calls, in the order in which they came first.

    Attributes:
        limits: thresholds of the rules that look at one image.
        calls: by call id.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    calls: dict[str, CallTally] = field(default_factory=dict)

    def add(self, records: Iterable[LayerRecord]) -> None:
        """Take over the records of an image, or of several."""
        before: dict[tuple[str, str, str], LayerRecord] = {}
        for record in sorted(records, key=lambda r: (r.image, r.call.order)):
            self._merge(_tally_of(record))
            self._compare(record, before)

    def merge(self, calls: Mapping[str, CallTally]) -> None:
        """Take over the tally of later images."""
        for tally in calls.values():
            self._merge(tally)

    def rows(self) -> tuple[LayerRow, ...]:
        """One a layer call and output, in the order in which the calls started."""
        rows = (tally.row() for tally in self.calls.values())
        return tuple(sorted(rows, key=lambda row: (row.order, row.side)))

    def _merge(self, other: CallTally) -> None:
        known = self.calls.get(other.call.id)
        if known is None:
            self.calls[other.call.id] = other
        else:
            known.merge(other)

    def _sign(self, rule: str, record: LayerRecord, number: float, against: str = "") -> None:
        if rule in self.limits:
            self.calls[record.call.id].sign(rule, Sign(number, [record.image], against))

    def _compare(
        self, record: LayerRecord, before: dict[tuple[str, str, str], LayerRecord]
    ) -> None:
        """Hold one image's figures against the thresholds, and against the layer of the same type before."""
        stats, call, limits = record.stats, record.call, self.limits
        for rule, count in (("nan", stats.nan_count), ("inf", stats.inf_count)):
            if count > limits.get(rule, math.inf):
                self._sign(rule, record, count)
        if stats.dtype == "float16" and stats.min is not None and stats.max is not None:
            share = max(abs(stats.min), abs(stats.max)) / FLOAT16_LARGEST
            if share >= limits.get("float16", math.inf):
                self._sign("float16", record, share)
        if not stats.std or call.side != "output" or call.layer.module_type in _PASSING:
            return
        form = (
            f"{record.layout.name} {record.layout.is_spatial} {call.call_index} {call.output_key}"
        )
        kind = (record.image, call.layer.module_type, form)
        previous = before.get(kind)
        before[kind] = record
        if previous is not None and previous.stats.std:
            ratio = stats.std / previous.stats.std
            for rule, number in (("exploding", ratio), ("vanishing", 1 / ratio)):
                if number >= limits.get(rule, math.inf):
                    self._sign(rule, record, number, previous.call.id)


def aggregate_layers(records: Iterable[LayerRecord]) -> tuple[LayerRow, ...]:
    """One row a layer call and output, over all images of ``records``."""
    tally = Tally()
    tally.add(records)
    return tally.rows()


def _tally_of(record: LayerRecord) -> CallTally:
    """The figures of one image."""
    stats, channels = record.stats, record.channels
    finite = stats.mean is not None and stats.std is not None
    tally = CallTally(
        record.call, record.layout, stats.shape, stats.dtype, record.histogram, images=1,
        numel=stats.numel, nans=stats.nan_count, infs=stats.inf_count,
        zeros=round((stats.zero_fraction or 0) * stats.numel),
        finite=stats.numel - stats.nan_count - stats.inf_count if finite else 0,
        mean=stats.mean or 0.0, std=stats.std or 0.0,
    )  # fmt: skip
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
