"""Find the channels of a layer that are dead, constant or saturated in all images.

Such channels affect other layers. The dead channels of a layer are also dead in a dropout after it,
and in a block that ends with it. If all channels are dead, each channel of the next layer holds a
single value. hookcli reports only the layer that causes this, and how many others are affected. A
finding explains only findings of the same rule, since a user may select only this rule. The one
exception: dead channels, which are more serious, also explain constant channels after them. So
hookcli reports a dead activation even if the convolution before it is constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hookcli.records.runs import Finding
from hookcli.records.text import and_more, count
from hookcli.summary.scales import role_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hookcli.summary.call_tally import CallTally
    from hookcli.summary.evidence import Evidence

_ENDS = {
    "Sigmoid": (0.01, 0.99),
    "Hardsigmoid": (0.0, 1.0),
    "ReLU6": (None, 6.0),
    "Tanh": (-0.99, 0.99),
    "Hardswish": (None, 3.0),  # above 3 it is the identity; its lower end is zero
}
_ACTIVATIONS = {*_ENDS, "ReLU", "relu", "sigmoid", "tanh", "relu6", "hardswish", "hardsigmoid"}
_NAMED = 2  # at most this many other layers are named
_LEAST_VALUES = 4  # per channel, over all images: a single value may be zero by chance
_MIXING = ("Conv", "Linear")  # types of layers that mix all channels of the layer before
_SAYS = {
    "dead": "are zero everywhere",
    "constant": "hold a single value",
    "saturated": "stay at an end of their activation",
}


@dataclass(slots=True)
class _Hit:
    rule: str
    tally: CallTally
    indices: frozenset[int]  # channel indices
    channels: int  # all channels of the call
    after: int = 0  # how many other calls this call explains

    @property
    def share(self) -> float:
        return len(self.indices) / self.channels

    @property
    def path(self) -> str:
        return self.tally.call.layer.module_path

    @property
    def kind(self) -> tuple[str, str, str, bool]:
        role, kind = role_of(self.path).name, self.tally.call.layer.module_type
        return self.rule, role, kind, self.share == 1

    def may_follow_from(self, cause: _Hit) -> bool:
        return self.rule == cause.rule or (self.rule, cause.rule) == ("constant", "dead")

    def is_part_of(self, other: _Hit) -> bool:
        start = f"{other.path}." if other.path else ""
        return self.rule == other.rule and self.path != other.path and self.path.startswith(start)

    def is_made_by(self, other: _Hit) -> bool:
        """Return whether ``other``, a hit of the call that ended just before, caused this hit."""
        # hookcli assumes that two activations of the same type are in different branches, so that
        # neither activation feeds the other.
        layer, layer_before = self.tally.call.layer, other.tally.call.layer
        if layer.module_type == layer_before.module_type and layer.module_type in _ACTIVATIONS:
            return False
        if self.share == other.share == 1:
            return self.rule != "saturated"
        mixes = layer.is_leaf and any(kind in layer.module_type for kind in _MIXING)
        return not mixes and (self.indices, self.channels) == (other.indices, other.channels)


def find_channels(evidence: Evidence, limits: Mapping[str, float]) -> Iterator[Finding]:
    alike: dict[tuple[str, str, str, bool], list[_Hit]] = {}
    for hit in _find_makers(evidence.list_ended("output"), limits):
        alike.setdefault(hit.kind, []).append(hit)
    for group in alike.values():
        hit = max(group, key=lambda each: each.share)  # in a tie, the first
        rule, call_id, tally = hit.rule, hit.tally.call.id, hit.tally
        everywhere = " in every image" if tally.images > 1 else ""
        after = f", and so in {count(hit.after, 'layer')} after it" if hit.after else ""
        others = [each.tally.call.id for each in group if each is not hit]
        more = and_more(len(others), " (and {} more layer{s} like it)")
        if 0 < len(others) <= _NAMED:
            more = f" (like {' and '.join(others)})"
        what = f"{len(hit.indices)} of {hit.channels} channels of {call_id} {_SAYS[rule]}"
        yield Finding(rule, call_id, hit.share, sentence=f"{what}{everywhere}{after}{more}")


def _find_makers(ended: Sequence[CallTally], limits: Mapping[str, float]) -> list[_Hit]:
    # A call's hit can be explained by a hit of the call that ended just before or, if the call is a
    # block, of a layer inside the block.
    makers: list[_Hit] = []
    before: list[tuple[_Hit, _Hit]] = []  # the previous call's hits, and what explains them
    for tally in ended:
        now = []
        for hit in _list_hits(tally, limits):
            inside = (each for each in reversed(makers) if each.is_part_of(hit))
            made = (maker for each, maker in before if hit.is_made_by(each))
            maker = next(filter(hit.may_follow_from, made), None) or next(inside, None)
            if maker is None:
                makers.append(hit)
            else:
                maker.after += 1
            now.append((hit, maker or hit))
        before = now
    return makers


def _list_hits(tally: CallTally, limits: Mapping[str, float]) -> Iterator[_Hit]:
    ranges = tally.ranges()
    if ranges is None or not tally.channels or tally.stats.numel / tally.channels < _LEAST_VALUES:
        return
    pairs = list(zip(*(values.tolist() for values in ranges), strict=True))
    tests: dict[str, Callable[[float, float], bool]] = {
        "dead": lambda low, high: low == 0 == high,
        "constant": lambda low, high: low == high != 0,
        "saturated": partial(_at_an_end, tally.call.layer.module_type),
    }
    for rule, holds in tests.items():
        indices = frozenset(index for index, pair in enumerate(pairs) if holds(*pair))
        if indices and len(indices) / len(pairs) >= limits[rule]:
            yield _Hit(rule, tally, indices, len(pairs))


def _at_an_end(module_type: str, low: float, high: float) -> bool:
    bottom, top = _ENDS.get(module_type, (None, None))
    return (bottom is not None and high <= bottom) or (top is not None and low >= top)
