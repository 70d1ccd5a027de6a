"""Judge whether calls of run B are close enough to their counterparts in run A, and rank them.

Nothing here reads a file or runs a model: the caller passes pairs of calls with their distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.distance.comparison import DiffRow
from hookcli.distance.metrics import axes_text
from hookcli.distance.tolerance import RTOL, coarser, floor_of
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from hookcli.distance.metrics import Distance
    from hookcli.distance.tolerance import Metric, Tolerance

_OF_ALL_IMAGES = ("rank", "order", "images", "failed_images")  # equal in all rows of a call


@dataclass(frozen=True, slots=True)
class CallTensor:
    call_id: str
    module_type: str
    shape: tuple[int, ...]  # of one image's tensor, with the leading axis 1
    dtype: str  # torch's name
    reason: str = ""  # why the gradient was not computed
    coarsest: str = ""  # the coarsest dtype of the tensors from which this one was computed
    operator: str = ""  # what computed the values, if the type of the module does not say it
    is_saturated: bool = False  # no value is above 0, as of a SiLU whose inputs are all negative


@dataclass(frozen=True, slots=True)
class CallPair:
    image: str  # the key of the image
    a: CallTensor | None
    b: CallTensor | None
    distance: Distance | None = None  # None if a tensor is missing, or if shapes differ
    axes: tuple[int, ...] = ()  # the order in which B has the axes of A, if B is a transposed A

    @property
    def present(self) -> tuple[CallTensor, ...]:
        return tuple(each for each in (self.a, self.b) if each is not None)


def find_floor(
    calls: Iterable[CallTensor], dtypes: Iterable[str] = (), *, of_channels: bool = False
) -> float:
    """Return the absolute error that rounding may cause in a pair of calls.

    The error is 0 unless the outputs of ``calls`` have a fixed range, such as 0 to 1 for sigmoids.
    It depends on the coarsest of the calls' dtypes and ``dtypes``. With ``of_channels``, hookcli
    assumes that in some channel, all inputs of a gate such as SiLU are negative.
    """
    known = tuple(calls)
    operators = [name for each in known for name in (each.module_type, each.operator)]
    found = (name for each in known for name in (each.dtype, each.coarsest))
    may_be = of_channels or any(each.is_saturated for each in known)
    return floor_of(operators, coarser(*found, *dtypes), is_saturated=may_be)


@dataclass(slots=True)
class JudgedRow:
    row: DiffRow  # its rank and order are still 0
    excess: float  # the distance divided by the largest tolerated one
    is_unknown: bool = False  # the metric could not be computed


@dataclass(slots=True)
class Judge:
    """Compares pairs of calls with a tolerance, and ranks them.

    Call ``add`` image by image, in the order in which the calls complete. ``rows`` then returns one
    row for each pair, the worst pair first. Private fields have pairs (id in A, id in B) as keys.
    """

    tolerance: Tolerance
    dtypes: tuple[str, ...] = ()  # of the models of both runs
    keeps_images: bool = False  # keep the row of every image, not only of the worst
    measured: int = 0  # the number of pairs whose values were compared
    missing: str = ""  # why the metric is unknown, for the first pair with an unknown metric
    _judged: dict[tuple[str, str], JudgedRow] = field(default_factory=dict)  # worst images
    _order: list[tuple[str, str]] = field(default_factory=list)  # in which calls complete in A
    _before: tuple[str, tuple[str, str]] | None = None  # the last pair's image and call
    _hidden: set[tuple[str, str]] = field(default_factory=set)  # what ``rows`` leaves out
    _of_images: dict[tuple[str, str], list[DiffRow]] = field(default_factory=dict)  # of all images

    def add(self, pair: CallPair, *, is_hidden: bool = False) -> None:
        """Judge a pair for one image, and update the pair's row for all images.

        If ``is_hidden``, ``rows`` leaves out the pair until ``show`` gets the id of the call.
        """
        key = (pair.a.call_id if pair.a else "", pair.b.call_id if pair.b else "")
        judged = self.judge(pair)
        if is_hidden:
            self._hidden.add(key)
        elif judged.is_unknown:
            self.missing = self.missing or judged.row.reason
        elif pair.distance is not None:
            self.measured += bool(pair.distance.difference.values or judged.row.reason)
        if self.keeps_images:
            self._of_images.setdefault(key, []).append(judged.row)
        known = self._judged.get(key)
        if known is None:
            before = self._before if self._before and self._before[0] == pair.image else None
            self._order.insert(self._order.index(before[1]) + 1 if before else 0, key)
        else:
            images, failed = known.row.images + 1, known.row.failed_images + (not judged.row.holds)
            worst = judged if judged.excess > known.excess else known
            row = replace(worst.row, images=images, failed_images=failed, holds=not failed)
            judged = JudgedRow(row, worst.excess)
        self._judged[key] = judged
        self._before = (pair.image, key)

    def show(self, call_ids: Collection[str]) -> None:
        """Stop hiding the calls with these ids. A call that A lacks goes by its id in B."""
        self._hidden = {key for key in self._hidden if (key[0] or key[1]) not in call_ids}

    def judge(self, pair: CallPair) -> JudgedRow:
        distance, reason = pair.distance, self._explain(pair)
        limit = excess = None
        if distance is not None:
            metric, atol = self.tolerance.metric, self.tolerance.atol
            rtol = self._rtol_of(pair, distance)
            if metric != "cosine" and self.tolerance.chosen_for(pair.present[0].call_id) is None:
                size = distance.a.figure(metric) or 0.0
                atol = max(atol, find_floor(pair.present, self.dtypes) - rtol * size)
            excess = distance.excess(metric, rtol, atol)
            limit = distance.limit(metric, rtol, atol)
        is_unknown = distance is not None and excess is None and not reason
        if distance is not None and is_unknown:
            reason = f"{self.tolerance.metric} cannot be computed from {distance.source}"
        if excess is None or reason:
            excess = math.inf if reason else 0.0
        row = _row(pair, reason, self.tolerance.metric, limit, holds=excess <= 1)
        return JudgedRow(row, excess, is_unknown)

    def rows(self) -> tuple[DiffRow, ...]:
        return tuple(row for row, _ in self._rank())

    def image_rows(self) -> Iterator[DiffRow]:
        for row, key in self._rank():
            kept = self._of_images.get(key, [])
            shared = {name: getattr(row, name) for name in _OF_ALL_IMAGES}
            # In place, so that the rows of all images are not in memory twice.
            kept[:] = [replace(each, **shared) for each in kept]
            yield from kept

    def _rank(self) -> Iterator[tuple[DiffRow, tuple[str, str]]]:
        shown = (key for key in self._order if key not in self._hidden)
        ranked = [(order, key, self._judged[key]) for order, key in enumerate(shown, 1)]
        ranked.sort(key=lambda each: (each[2].row.holds, -each[2].excess, each[0]))
        for rank, (order, key, judged) in enumerate(ranked, 1):
            yield replace(judged.row, rank=rank, order=order), key

    def _rtol_of(self, pair: CallPair, distance: Distance) -> float:
        dtypes = tuple(name for each in pair.present for name in (each.dtype, each.coarsest))
        if any(dtype in RTOL for dtype in dtypes):  # others are integers, whose default is 0
            dtypes += self.dtypes
        sketched = distance.source == "sketches"
        return self.tolerance.rtol_of(pair.present[0].call_id, dtypes, sketched=sketched)

    def _explain(self, pair: CallPair) -> str:
        """Return why a pair fails regardless of its distance, or "" if the distance decides."""
        a, b, distance = pair.a, pair.b, pair.distance
        if a is None or b is None:
            return "only in B" if a is None else "only in A"
        if bool(a.reason) != bool(b.reason):
            return f"no gradient in {'A' if a.reason else 'B'}: {a.reason or b.reason}"
        axes = axes_text(pair.axes) if pair.axes else ""
        if a.shape != b.shape and distance is None:
            shapes = f"shapes differ: {shape_text(a.shape)} and {shape_text(b.shape)}"
            return f"{shapes}: {axes}" if axes else shapes
        if axes:
            return axes
        if distance is None:
            return ""
        if distance.misplaced:
            return f"NaN or Inf differ in {_places(distance.misplaced)}"
        if not self.tolerance.equal_nan:
            lets = "(`equal_nan` accepts this)"
            if distance.nans and not distance.source.startswith("tensors"):
                both = f"NaN or Inf in both, {distance.nans:,} of them, at places"
                return f"{both} that {distance.source} do not record {lets}"
            if distance.nans:
                return f"NaN in both, in {_places(distance.nans)} {lets}"
            if math.prod(a.shape) and not distance.difference.values:
                return f"no value is finite in both {lets}"
        if self.tolerance.metric != "cosine" or distance.has_angle or not distance.difference.rms:
            return ""
        return f"{'B' if distance.a.rms else 'A'} is zero everywhere"


def _places(number: int) -> str:
    return f"{number:,} place{'' if number == 1 else 's'}"


def _row(pair: CallPair, why: str, metric: Metric, limit: float | None, *, holds: bool) -> DiffRow:
    a, b, distance, first = pair.a, pair.b, pair.distance, pair.present[0]
    return DiffRow(
        rank=0,
        order=0,
        call_id=first.call_id,
        other_call_id=b.call_id if b else "",
        module_type=first.module_type,
        holds=holds,
        reason=why,
        metric=metric,
        tolerance=limit,
        rel_l2=distance.rel_l2 if distance else None,
        max_abs=distance.difference.largest if distance else None,
        mean_abs=distance.difference.mean if distance else None,
        cosine=distance.cosine if distance else None,
        channel_median=distance.channels[0] if distance and distance.channels else None,
        channel_worst=distance.channels[1] if distance and distance.channels else None,
        shape=a.shape if a else (),
        other_shape=b.shape if b else (),
        dtype=a.dtype if a else "",
        other_dtype=b.dtype if b else "",
        source=distance.source if distance else "",
        image=pair.image,
        images=1,
        failed_images=int(not holds),
    )
