"""The statistics of tensors, each declared once, as a field of ``Statistics``.

A declaration says what the statistic is, how the values of two images are merged, and how it is
shown. Columns, records, pages and totals are made from it; ``activations/stats`` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from hookcli.documents import Whole

Known: TypeAlias = Mapping[str, float]
"""The statistics of some values by name, with ``numel`` and ``finite``, the numbers of values."""

_Merge: TypeAlias = Callable[[str, Known, Known], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """What a statistic means, and what is done with it.

    Attributes:
        text: what it is of one tensor.
        over_images: what it is over all images, as a sentence.
        unit: ``number`` for a figure of the finite values, which is None if there are none;
            ``share`` for a part of all values, 0 to 1, None if there are none; ``count`` for a
            number of values.
        merge: returns the statistic of two sets of values, from its name and the sets' statistics.
            It is called if both sets have values that the statistic is about.
        heading: the title of its column in tables; empty if tables do not show it.
        is_logged: whether ``Captured.log_to`` writes it for activations.
    """

    text: str
    over_images: str
    unit: Literal["number", "share", "count"] = "number"
    merge: _Merge
    heading: str = ""
    is_logged: bool = False

    def choose_size(self, numel: int, finite: int) -> int:
        """Return how many values the statistic is about: the finite ones, or all."""
        return finite if self.unit == "number" else numel

    def format(self, value: float | None) -> str:
        """Return a value as text: shares in percent, others with four digits, None as nothing."""
        if value is None:
            return ""
        return f"{value:.1%}" if self.unit == "share" else f"{value:.4g}"


@dataclass(frozen=True)
class Statistics:
    """The statistics of the values of a tensor, or of the tensors of several images.

    A class that inherits from this one has a field for each of them.
    """

    __slots__ = ()

    mean: Annotated[
        float | None,
        Statistic(
            text="mean of the finite values, or magnitudes if complex, in their unit; null if none",
            over_images="Mean of the finite values of all images.",
            merge=_merge_means,
            heading="mean",
            is_logged=True,
        ),
    ] = None
    std: Annotated[
        float | None,
        Statistic(
            text="population standard deviation of the finite values",
            over_images="Population standard deviation of the finite values of all images.",
            merge=_merge_deviations,
            heading="std",
            is_logged=True,
        ),
    ] = None
    min: Annotated[
        float | None,
        Statistic(
            text="smallest finite value",
            over_images="Smallest finite value of all images.",
            merge=_choose_smaller,
            heading="min",
        ),
    ] = None
    max: Annotated[
        float | None,
        Statistic(
            text="largest finite value",
            over_images="Largest finite value of all images.",
            merge=_choose_larger,
            heading="max",
        ),
    ] = None
    zero_fraction: Annotated[
        float | None,
        Statistic(
            text="exact zeros over all values, 0 to 1",
            over_images="Share of exact zeros in all values, 0 to 1.",
            unit="share",
            merge=_merge_shares,
            heading="zeros",
            is_logged=True,
        ),
    ] = None
    nan_count: Annotated[
        Whole,
        Statistic(
            text="values that are NaN",
            over_images="Number of values that are NaN, in all images.",
            unit="count",
            merge=_add,
            is_logged=True,
        ),
    ] = 0
    inf_count: Annotated[
        Whole,
        Statistic(
            text="values that are infinite",
            over_images="Number of values that are infinite, in all images.",
            unit="count",
            merge=_add,
            is_logged=True,
        ),
    ] = 0


def figures_of(stats: Statistics) -> dict[str, Any]:
    """Return the values of all statistics by name, in the order of ``STATISTICS``."""
    return {name: getattr(stats, name) for name in STATISTICS}


def layer_cells(
    call_id: str, module_type: str, shape: str, figures: Mapping[str, Any]
) -> dict[str, str]:
    """Return what a notebook shows of a call: texts, by the headings of their columns."""
    shown = {each.heading: each.format(figures.get(name)) for name, each in SHOWN.items()}
    return {"call": call_id, "type": module_type, "shape": shape, **shown}


def _choose_smaller(name: str, one: Known, two: Known) -> float:
    return min(one[name], two[name])


def _choose_larger(name: str, one: Known, two: Known) -> float:
    return max(one[name], two[name])


def _add(name: str, one: Known, two: Known) -> float:
    return one[name] + two[name]


def _merge_shares(name: str, one: Known, two: Known) -> float:
    """Return the share in the values of both; each is a whole number of values, so it is exact."""
    values = sum(round(each[name] * each["numel"]) for each in (one, two))
    return values / (one["numel"] + two["numel"])


def _merge_means(name: str, one: Known, two: Known) -> float:
    return _average(lambda part: part[name], one, two)


def _merge_deviations(_name: str, one: Known, two: Known) -> float:
    mean = _merge_means("mean", one, two)
    variance = _average(lambda part: part["std"] ** 2 + (part["mean"] - mean) ** 2, one, two)
    return math.sqrt(variance)


def _average(figure: Callable[[Known], float], one: Known, two: Known) -> float:
    """Return the mean of a figure of two sets, each weighted by its finite values."""
    total = one["finite"] + two["finite"]
    return (one["finite"] * figure(one) + two["finite"] * figure(two)) / total


STATISTICS: Mapping[str, Statistic] = {
    name: next(each for each in hint.__metadata__ if isinstance(each, Statistic))
    for name, hint in get_type_hints(Statistics, include_extras=True).items()
}
"""What is declared of each statistic, by its name, in the order of columns."""

SHOWN = {name: each for name, each in STATISTICS.items() if each.heading}
"""Those that tables show."""
