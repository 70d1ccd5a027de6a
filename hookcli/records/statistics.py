"""Declare each statistic of tensors: its heading, its text form, and how it merges over images.

hookcli makes columns, records, pages and totals from these declarations. ``activations/stats``
computes the values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from hookcli.outside.documents import Share, Whole

Pairs: TypeAlias = Mapping[str, tuple[float, float]]
"""The statistics of two tensors to be merged: by name, a pair of values, one of each tensor.

``numel`` has their numbers of values, and ``finite`` their numbers of finite values.
"""

OVER = {"number": "finite", "share": "numel", "count": "numel"}
"""By the unit of a statistic, which count of values must not be 0 for the statistic to be known.

Where it is 0 for one of two tensors, merging takes the statistic of the other one.
"""

_Merge: TypeAlias = Callable[[str, Pairs], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """Declares a statistic: its meaning, how hookcli merges it over images, and how it is shown."""

    text: str  # its meaning, for one tensor and for several images
    # ``number``: of the finite values; ``share``: of all, 0 to 1; ``count``: how many
    unit: Literal["number", "share", "count"] = "number"
    merge: _Merge  # ``merge(name, pairs)`` merges two values of the statistic called ``name``
    heading: str = ""  # of its column in tables; empty for none

    def with_default(self, default: float | None) -> Any:
        """Return a dataclass field that declares the statistic, with this default value."""
        return field(default=default, metadata={"statistic": self, "text": self.text})

    def format(self, value: float | None) -> str:
        """Return a value as text: a share in percent, others with four digits; empty for None."""
        if value is None:
            return ""
        return f"{value:.1%}" if self.unit == "share" else f"{value:.4g}"


def _combine(combine: Callable[[tuple[float, float]], float]) -> _Merge:
    return lambda name, pairs: combine(pairs[name])


def _merge_shares(name: str, pairs: Pairs) -> float:
    # It is exact, since hookcli rounds the numbers behind the two shares to whole numbers.
    (one, two), (size, other_size) = pairs[name], pairs["numel"]
    return (round(one * size) + round(two * other_size)) / (size + other_size)


def _merge_deviations(name: str, pairs: Pairs) -> float:
    (one, two), (mean_one, mean_two) = pairs[name], pairs["mean"]
    mean = _average(mean_one, mean_two, pairs)
    squares = (one**2 + (mean_one - mean) ** 2, two**2 + (mean_two - mean) ** 2)
    return math.sqrt(_average(*squares, pairs))


def _average(one: float, two: float, pairs: Pairs) -> float:
    size, other_size = pairs["finite"]
    return (size * one + other_size * two) / (size + other_size)


_smaller, _larger, _add = _combine(min), _combine(max), _combine(sum)


@dataclass(frozen=True)
class Statistics:
    """The statistics of one tensor, or of the tensors of several images together."""

    __slots__ = ()

    mean: float | None = Statistic(
        text="mean of the finite values, or magnitudes if complex, in their unit; null if none",
        merge=lambda name, pairs: _average(*pairs[name], pairs),
        heading="mean",
    ).with_default(None)
    std: float | None = Statistic(
        text="population standard deviation of the finite values",
        merge=_merge_deviations,
        heading="std",
    ).with_default(None)
    min: float | None = Statistic(
        text="smallest finite value", merge=_smaller, heading="min"
    ).with_default(None)
    max: float | None = Statistic(
        text="largest finite value", merge=_larger, heading="max"
    ).with_default(None)
    zero_fraction: Share | None = Statistic(  # noqa: RUF009  with_default returns a field
        text="exact zeros over all values, 0 to 1",
        unit="share",
        merge=_merge_shares,
        heading="zeros",
    ).with_default(None)
    nan_count: Whole = Statistic(  # noqa: RUF009  with_default returns a field
        text="values that are NaN", unit="count", merge=_add
    ).with_default(0)
    inf_count: Whole = Statistic(  # noqa: RUF009  with_default returns a field
        text="values that are infinite", unit="count", merge=_add
    ).with_default(0)


def figures_of(stats: Statistics) -> dict[str, Any]:
    """Return the values of all statistics by name, in the order of ``STATISTICS``."""
    return dict(zip(STATISTICS, _read_all(stats), strict=True))


def layer_cells(
    call_id: str, module_type: str, shape: str, figures: Mapping[str, Any]
) -> dict[str, str]:
    """Return a row of a notebook's table of calls, as a map of column headings to texts."""
    shown = {each.heading: each.format(figures.get(name)) for name, each in SHOWN.items()}
    return {"call": call_id, "type": module_type, "shape": shape, **shown}


STATISTICS: Mapping[str, Statistic] = {
    each.name: each.metadata["statistic"] for each in fields(Statistics)
}
"""The declarations of all statistics, by name, in the order of the columns."""

IN_EVERY_VERSION = ("mean", "std", "min", "max", "nan_count", "inf_count")
"""The statistics that files of every hookcli version have; older files may lack the others."""

COUNTS = [name for name in STATISTICS if STATISTICS[name].unit == "count"]

# This runs for every call of every image, and is twice as fast as getattr or using declarations.
_read_all = operator.attrgetter(*STATISTICS)
_MERGES = [(name, OVER[each.unit], each.merge) for name, each in STATISTICS.items()]

SHOWN = {name: each for name, each in STATISTICS.items() if each.heading}
"""The statistics that tables show, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalStats(Statistics):
    """The statistics of ``numel`` values, from one tensor or from several images' tensors."""

    numel: int = 0

    @property
    def finite(self) -> int:
        """The number of finite values."""
        return self.numel - self.nan_count - self.inf_count

    def merge(self, other: TotalStats) -> TotalStats:
        """Return the statistics of all values of ``self`` and ``other`` together."""
        both = zip(_read_all(self), _read_all(other), strict=True)
        pairs = dict(zip(STATISTICS, both, strict=True))
        pairs["numel"] = (self.numel, other.numel)
        pairs["finite"] = (self.finite, other.finite)
        figures: dict[str, Any] = {}
        for name, over, merge in _MERGES:
            size, other_size = pairs[over]
            both = size and other_size
            figures[name] = merge(name, pairs) if both else pairs[name][0 if size else 1]
        return TotalStats(numel=self.numel + other.numel, **figures)
