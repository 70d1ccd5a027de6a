"""Deciding which calls of B are to blame for its distance from A.

The inherited error of a call is its distance as B ran; the call may only pass on the errors of
earlier calls. The own error is the distance when the call gets A's inputs. A culprit is a call with
an own error that is neither rounding nor the same for all calls of its kind.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EPSILON = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
"""The distance of 1 from the next larger number, by dtype."""

ROUNDING = 8
"""How many times larger than the effect of rounding a culprit's own error is, at least.

The effect of rounding is the error of A's own call when each of its inputs moves to a neighbouring
number of the coarser dtype. Measured on ten classifiers of torchvision with random weights, the own
errors of healthy calls were at most this many times as large:

    channels last against contiguous, float32   4.1
    one thread against two, float32             1.6
    bfloat16 against float32                    0.9
    float16 against float32                     1.0   unless values underflow
"""

OUTSTANDING = 10
"""How many times larger than the median own error of like calls a culprit's own error is, at least.

In bfloat16, the largest own error of a type of layer was at most 3 times the median (swin_v2_t).
"""

_FEW = 3  # with fewer like calls, a call is compared with all other calls
_WEIGHTED = ("BatchNorm", "Conv", "Linear")  # or with these, which a quantizer changes alike


@dataclass(frozen=True, slots=True)
class OwnError:
    """The own error of a call.

    Attributes:
        call_id: the id of the call in A, or in B if A does not have the call.
        module_type: the class name of the module, or the name of the operation.
        own: the relative L2 distance from A of the call's output, when B computes it from A's
            inputs; Inf if the shapes differ, or if values are not finite in only one of them.
        rounding: the relative L2 error that rounding explains, from one rounding of each input.
        reason: why the call is to blame, in words that follow its name, if its own error alone does
            not say so; otherwise empty.
    """

    call_id: str
    module_type: str
    own: float
    rounding: float
    reason: str = ""

    @property
    def score(self) -> float:
        """The own error divided by the error that rounding explains."""
        return self.own / self.rounding if self.rounding else float("inf") if self.own else 0.0


@dataclass(frozen=True, slots=True)
class Blame:
    """Which calls are to blame.

    Attributes:
        culprits: the calls to blame, in the order in which they complete.
        spread: if there is no culprit, how many calls of each type share the error; the type with
            the largest share of the error comes first.
        worst: the call with the largest own error, among the finite ones; None without own errors.
        is_rounding: whether rounding explains all own errors.
        dtype: the coarser dtype of A and B, whose rounding is meant.
    """

    culprits: tuple[OwnError, ...]
    spread: tuple[tuple[str, int], ...]
    worst: OwnError | None
    is_rounding: bool
    dtype: str

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the culprits."""
        return tuple(each.call_id for each in self.culprits)


def coarser(*dtypes: str) -> str:
    """Return the dtype with the fewest digits, among those that hold floating-point numbers."""
    return max((each for each in dtypes if each in EPSILON), key=EPSILON.__getitem__)


def find_culprits(errors: Sequence[OwnError], dtype: str, rtol: float | None = None) -> Blame:
    """Decide which calls are to blame.

    Args:
        errors: the own errors of all calls, in the order in which the calls complete.
        dtype: the coarser dtype of A and B.
        rtol: the own error that is tolerated; None decides by the error that rounding explains.
    """
    exceeding = [each for each in errors if _exceeds(each, rtol)]
    culprits = tuple(
        each
        for each, usual in zip(errors, _list_usual(errors), strict=True)
        if _exceeds(each, rtol) and (each.reason or each.own > OUTSTANDING * usual)
    )
    finite = [each for each in errors if 0 < each.own < float("inf")]
    return Blame(
        culprits,
        () if culprits else _share(exceeding or finite),
        max(finite, key=lambda each: each.own, default=None),
        is_rounding=not exceeding,
        dtype=dtype,
    )


def _exceeds(error: OwnError, rtol: float | None) -> bool:
    limit = ROUNDING * error.rounding if rtol is None else rtol
    return bool(error.reason) or error.own > limit


def _list_usual(errors: Sequence[OwnError]) -> list[float]:
    """Return for each call the median own error of the other calls of its type."""
    # If there are fewer than three, the median is over all other calls.
    alike: dict[str, list[float]] = defaultdict(list)
    for each in errors:
        alike[each.module_type].append(each.own)
    everything = [each.own for each in errors]
    weighted = [each.own for each in errors if each.module_type.startswith(_WEIGHTED)]
    usual = []
    for each in errors:
        others = alike[each.module_type]
        if len(others) <= _FEW:
            is_alike = each.module_type.startswith(_WEIGHTED) and len(weighted) > _FEW
            others = weighted if is_alike else everything
        usual.append(_median_without(each.own, others))
    return usual


def _median_without(value: float, values: Sequence[float]) -> float:
    """Return the median of ``values`` without one occurrence of ``value``; 0 if nothing is left."""
    others = list(values)
    others.remove(value)
    return statistics.median(others) if others else 0.0


def _share(errors: Iterable[OwnError]) -> tuple[tuple[str, int], ...]:
    """Return the number of calls of each type, the type with the largest errors together first."""
    squares: dict[str, list[float]] = defaultdict(list)
    for each in errors:
        squares[each.module_type].append(each.own**2)
    largest = sorted(squares.items(), key=lambda pair: -sum(pair[1]))
    return tuple((kind, len(values)) for kind, values in largest)
