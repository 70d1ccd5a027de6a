"""Decide which calls of B are to blame for B's distance from A, and describe these calls.

The inherited error of a call is its distance from A in a normal run of B, which may come from
earlier calls. The own error is the distance when the call gets A's inputs. A culprit is a call
whose own error is larger than rounding explains, and larger than usual for calls of its kind.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.distance.answer import share_text
from hookcli.records.calls import OPERATION
from hookcli.records.text import and_more, count, figure_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROUNDING = 8
"""A culprit's own error is more than this many times the effect of rounding.

The effect of rounding on a call is how far its output in A moves when each of its inputs moves to a
neighbouring number of the coarser dtype of A and B. On ten classifiers of torchvision with random
weights, the own errors of healthy calls were at most these multiples of that effect:

    channels last against contiguous, float32   4.1
    one thread against two, float32             1.6
    bfloat16 against float32                    0.9
    float16 against float32                     1.0   unless values underflow
"""

OUTSTANDING = 10
"""A culprit's own error is more than this many times the median own error of similar calls.

In bfloat16, the largest own error of a type of layer was at most 3 times the median (swin_v2_t). If
there are many similar layers with weights, the scatter of their own errors decides, and the limit
may be lower. In 16 quantized files of eight healthy classifiers, the largest error was 1.2 to 3.4
times the median, and that limit was at least 1.7 times the largest error.
"""

_MANY = 16  # from this many similar calls, hookcli measures how far their errors scatter
_LEAST, _DEVIATIONS = 5, 4.5  # the limit is then 4.5 deviations of their logarithms, at least 5
_NORMAL = 1.4826  # the standard deviation, in median absolute deviations of normal numbers
_OF_MANY = 8  # the worst of many channels may be this many times farther off (measured: 25 / 8)
# A figure of a culprit is more than this many times what quantizing explains, or it is more than
# usual. In 81 healthy quantized files of nine networks, 12 of 735 errors of whole tensors were more
# than that, most of them of softmax, none of 414 medians and one of 414 worst channels.
_NOISES = 8, 8, 48
_MANY_TIMES = 3  # a channel is reported from this multiple of the error of the whole tensor
_NAMED = 4  # at most this many culprits and types are named in one line
_FEW = 3  # with fewer like calls, a call is compared with all other calls
_WEIGHTED = ("BatchNorm", "Conv", "Linear")  # or with these, which a quantizer changes alike


@dataclass(frozen=True, slots=True)
class OwnError:
    """The own error of a call, and how much of the error rounding or quantizing explains.

    The own error is the relative L2 distance from A's output when B's call gets A's inputs.
    """

    call_id: str  # in A, or in B if A does not have the call
    module_type: str
    own: float  # Inf if shapes differ, or if values are not finite in only one of A and B
    rounding: float  # the error that rounding explains, from one rounding of each input
    # the own error of the median channel and of the worst one, relative to the channel; empty if
    # the channels are unknown
    channels: tuple[float, ...] = ()
    channel_rounding: tuple[float, ...] = ()  # the parts of ``channels`` that rounding explains
    # what calls must have in common to be like this one: ``module_type``, or the type of a
    # convolution or a linear layer that is computed together with the call
    kind: str = ""
    before: str = ""  # the later call whose own error this is, if the call has none of its own
    only_in: str = ""  # ``A`` or ``B`` if only that side has the call
    lacks: tuple[str, ...] = ()  # the calls of A that this call, which only B has, replaces
    noise: float = 0.0  # the own error that quantizing explains, if B quantizes the call
    merged: tuple[str, ...] = ()  # the calls of A that the other side computes in this call
    weights: str = ""  # in words: how far quantized weights are off, if rounding cannot explain it

    @property
    def figures(self) -> tuple[tuple[float, float], ...]:
        """Pairs (own error, error that rounding explains), first the pair of the whole tensor.

        If the channels are known, a pair for the median channel and one for the worst follow.
        """
        if not self.channels:
            return ((self.own, self.rounding),)
        (median, worst), (usual, most) = self.channels, self.channel_rounding
        return (self.own, self.rounding), (median, usual), (worst, _OF_MANY * most)

    @property
    def score(self) -> float:
        scores = (
            own / rounding if rounding else float("inf") if own else 0.0
            for own, rounding in self.figures
            if rounding < float("inf")  # otherwise, it explains any error
        )
        return max(scores, default=0.0)


@dataclass(frozen=True, slots=True)
class Blame:
    culprits: tuple[OwnError, ...]  # in the order in which they complete
    # without a culprit: how many calls of each type share the error, the largest share first; empty
    # if the file does not tell which layers have the error of ``worst``
    spread: tuple[tuple[str, int], ...]
    worst: OwnError | None  # the largest finite own error
    is_rounding: bool  # whether rounding explains all own errors
    dtype: str  # the coarser dtype of A and B, whose rounding is meant

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(each.call_id for each in self.culprits)


def name_merged(blame: Blame, left_out: Iterable[tuple[str, str]]) -> Blame:
    """Give each culprit the calls that are merged into it; one of them may be the cause.

    ``left_out`` has call ids with reasons, such as ``("conv1", "merged into bn1")``.
    """
    into: dict[str, list[str]] = defaultdict(list)
    for call_id, reason in left_out:
        into[reason.removeprefix("merged into ")].append(call_id)
    culprits = (replace(each, merged=tuple(into[each.call_id])) for each in blame.culprits)
    return replace(blame, culprits=tuple(culprits))


def find_culprits(
    errors: Sequence[OwnError], dtype: str, rtol: float | None = None, *, judges_alike: bool = True
) -> Blame:
    # ``rtol`` is the tolerated own error; None decides by the error that rounding explains. Without
    # ``judges_alike``, a call is a culprit even if the error is usual for calls of its kind.
    limits = [_list_limits(each, rtol) for each in errors]
    exceeding = [each for each, most in zip(errors, limits, strict=True) if _exceeds(each, most)]
    culprits = tuple(
        each
        for each, most, usual in zip(errors, limits, _list_usual(errors), strict=True)
        if _exceeds(each, map(max, most, usual) if judges_alike else most)
    )
    finite = [each for each in errors if 0 < each.own < float("inf")]
    return Blame(
        culprits,
        () if culprits else _share(exceeding or finite),
        max(finite, key=lambda each: each.own, default=None),
        is_rounding=not exceeding,
        dtype=dtype,
    )


def _list_limits(error: OwnError, rtol: float | None) -> list[float]:
    whole, *channels = (ROUNDING * rounding for _, rounding in error.figures)
    return [whole, *channels] if rtol is None else [rtol, *(max(rtol, each) for each in channels)]


def _exceeds(error: OwnError, limits: Iterable[float]) -> bool:
    pairs = zip(error.figures, limits, strict=True)
    return bool(error.weights) or any(own > limit for (own, _), limit in pairs)


def _list_usual(errors: Sequence[OwnError]) -> Iterator[list[float]]:
    # The limits of a call, one for each pair in ``OwnError.figures``, are a multiple of the median
    # of other modules of the type. With fewer than three of these, other layers with weights, or
    # all other modules, replace them. A multiple of what quantizing explains is then a lower limit;
    # else, an upper one, for whole tensors of layers with weights.
    alike: dict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
    for each in errors:
        kind = each.kind or each.module_type
        for index, (own, _) in enumerate(each.figures):
            for name in (kind, "", *(["weighted"] if kind.startswith(_WEIGHTED) else ())):
                alike[name, index].append((owner_of(each.call_id), own))
    for each in errors:
        usual, kind, owner = [], each.kind or each.module_type, owner_of(each.call_id)
        for index in range(len(each.figures)):
            others, weighted, every = (
                [own for other, own in alike[name, index] if other != owner]
                for name in (kind, "weighted", "")
            )
            is_few = len(others) < _FEW
            if is_few:
                others = weighted if kind.startswith(_WEIGHTED) and len(weighted) >= _FEW else every
            is_layer = kind.startswith(_WEIGHTED) and not index
            factor = _find_factor(others) if is_layer else OUTSTANDING
            limits = [factor * (statistics.median(others) if others else 0.0)]
            if each.noise and (is_few or is_layer):
                limits.append(_NOISES[index] * each.noise)
            usual.append(max(limits) if is_few else min(limits))
        yield usual


def _find_factor(others: Sequence[float]) -> float:
    logs = [math.log(each) for each in others if 0 < each < math.inf]
    if len(logs) < _MANY:
        return OUTSTANDING
    middle = statistics.median(logs)
    above = [each - middle for each in logs if each >= middle]  # small errors scatter more
    deviation = _NORMAL * statistics.median(above)
    return min(OUTSTANDING, max(_LEAST, math.exp(_DEVIATIONS * deviation)))


def owner_of(call_id: str) -> str:
    """Return the module path in a call id (``fc`` in ``fc#1``), or the whole id of an operation."""
    return call_id if OPERATION in call_id else re.split(r"[#\[]", call_id)[0]


def _share(errors: Iterable[OwnError]) -> tuple[tuple[str, int], ...]:
    squares: dict[str, list[float]] = defaultdict(list)
    for each in errors:
        squares[each.module_type].append(each.own**2)
    largest = sorted(squares.items(), key=lambda pair: -sum(pair[1]))
    return tuple((kind, len(values)) for kind, values in largest)


def blame_text(blame: Blame) -> str:
    if culprits := blame.culprits:
        named = "; ".join(map(_culprit_text, culprits[:_NAMED]))
        more = and_more(len(culprits) - _NAMED, "; and {} more")
        return f"{count(len(culprits), 'culprit')}: {named}{more}"
    if blame.worst is None:
        return "no culprit: no call differs by itself"
    if not blame.spread:
        error = f"the own error {figure_text(blame.worst.own)} of {blame.worst.call_id}"
        return f"no culprit: the file does not tell which layers make {error}"
    kinds = [f"{number} {kind}" for kind, number in blame.spread]
    among = f"{', '.join(kinds[:_NAMED])}{and_more(len(kinds) - _NAMED, ', and {} more types')}"
    largest = f"own errors are at most {figure_text(blame.worst.own)} ({blame.worst.call_id})"
    if blame.is_rounding and blame.dtype == "float32":
        return f"no culprit: {largest}, which is rounding in {blame.dtype}"
    reach = f", within the rounding of {blame.dtype}" if blame.is_rounding else ""
    return f"no culprit: the error is spread evenly over {among}; {largest}{reach}"


def _culprit_text(culprit: OwnError) -> str:
    parts = f", with {' and '.join(culprit.merged)} merged into it" if culprit.merged else ""
    name = f"{culprit.call_id} ({culprit.module_type}{parts})"
    if culprit.only_in:
        lacking = f", which has no {' and no '.join(culprit.lacks)}" if culprit.lacks else ""
        after = f"{culprit.before} after it has the own error {figure_text(culprit.own)}"
        return f"{name} is only in {culprit.only_in}{lacking}; {after}"
    if culprit.weights:
        own = f"{figure_text(culprit.own)}{f' of {culprit.before}' if culprit.before else ''}"
        return f"{name}, quantized from other weights ({culprit.weights}), own error {own}"
    if not math.isfinite(culprit.own):
        return f"{name}, which differs in shape, or in NaN and Inf, given the same inputs"
    usual = figure_text(culprit.rounding)
    text = f"{name}, own error {figure_text(culprit.own)}, of which rounding explains {usual}"
    if not culprit.channels or culprit.channels[1] < _MANY_TIMES * culprit.own:
        return text
    median, worst = map(share_text, culprit.channels)
    return f"{text}; its median channel is {median} off, and its worst {worst}"
