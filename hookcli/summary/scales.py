"""Find standard deviations that explode or vanish, by comparing each call with a counterpart.

Layers of the same type do different work: an expansion is not a depthwise convolution, and a query
projection is not a patch embedding. A layer is therefore compared with the layer of the same role
in another block: ``layer2.3.conv2`` with ``layer2.2.conv2``. A layer's role is its module path
without the numbers of its blocks. Over a *stretch* of such layers, changes that are too small to
count from block to block add up to a large one.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from typing import TYPE_CHECKING, TypeVar

from hookcli.records.calls import OPERATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hookcli.records.layer_records import LayerRecord
    from hookcli.summary.call_tally import CallTally

_Call = TypeVar("_Call", "LayerRecord", "CallTally")
_PASSING = ("Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth", "DropPath")
_NUMBER = re.compile(r"(?<![#\d])(?:\d+[a-z](?![A-Za-z\d])|\d+)")  # 3, and 3a of inception3a


@dataclass(frozen=True, slots=True)
class Role:
    name: str  # the module path with a star for each number of a block: ``layer*.*.conv2``
    # the outermost first; adjacent numbers are one: ``2.3`` for ``layer2.3.conv2``
    blocks: tuple[str, ...] = ()

    @property
    def is_in_block(self) -> bool:
        return bool(self.blocks) and not self.name.endswith("*")


@functools.lru_cache(maxsize=4096)
def role_of(module_path: str) -> Role:
    # A number followed by a name is the number of a block. A trailing number belongs to the layer
    # (``mlp.3``, ``conv2``), unless it is the only one in the path, an item of a plain sequence
    # (``features.3``). Numbers in an operation's name (``op:conv2d``) belong to the operation.
    groups: list[list[re.Match[str]]] = []
    name_start = module_path.rfind("/") + 1
    is_operation = module_path.startswith(OPERATION, name_start)
    for match in _NUMBER.finditer(module_path, 0, name_start if is_operation else len(module_path)):
        if groups and module_path[groups[-1][-1].end() : match.start()] in (".", "-", "_"):
            groups[-1].append(match)
        else:
            groups.append([match])
    if len(groups) > 1 and not re.search(r"[./]", module_path[groups[-1][-1].end() :]):
        groups.pop()
    name, end = "", 0
    for match in (match for group in groups for match in group):
        name, end = f"{name}{module_path[end : match.start()]}*", match.end()
    blocks = tuple(module_path[group[0].start() : group[-1].end()] for group in groups)
    return Role(name + module_path[end:], blocks)


@dataclass(frozen=True, slots=True)
class ScaleHit:
    rule: str
    record: LayerRecord
    number: float  # the factor by which it is larger, or smaller, than expected
    against: LayerRecord


@dataclass(frozen=True, slots=True)
class _Signature:
    module_path: str
    form: tuple[str, str, bool, int, str]  # module type, layout, is_spatial, call index, output key

    @property
    def role(self) -> tuple[str, object]:
        """A key that is equal for calls of different blocks that hookcli may compare."""
        return role_of(self.module_path).name, self.form

    @property
    def row(self) -> tuple[str, object]:
        """A key that is equal for calls of layers with the same type and parent module."""
        return re.sub(r"[./]?[^./]*$", "", self.module_path), self.form


@dataclass(frozen=True, slots=True)
class _Reference:
    here: int
    there: int
    same_step: bool  # whether the calls right before both have the same role
    others: tuple[int, ...] = ()  # later calls of the role, from which the call must differ, too


def find_scale_hits(
    records: Iterable[LayerRecord], exploding: float, vanishing: float
) -> list[ScaleHit]:
    """Return the calls at which one image's standard deviation explodes or vanishes.

    ``records`` are the image's outputs, or their gradients, in the order in which the model made
    them. ``exploding`` and ``vanishing`` are the smallest factors of change that count.
    """
    # A call's counterpart is the call of the same role in the previous block or, for the first
    # block, in the next; outside of blocks, the previous call of a layer with the same type and
    # parent. The call itself must cause the change: its step, which is its standard deviation
    # divided by that of the call right before, must be beyond the threshold; or beyond its square
    # root, if the ratio to the counterpart's step is beyond the threshold, or in the first block.
    # Consequences are not hits: the return to the earlier standard deviation, and the same change
    # in later layers until their counterparts have changed, too.
    row = [r for r in records if r.stats.std and r.call.layer.module_type not in _PASSING]
    spreads = [record.stats.std or 1.0 for record in row]
    inverses = [1 / spread for spread in spreads]
    rules = (("exploding", spreads, exploding), ("vanishing", inverses, vanishing))
    changed: dict[int, str] = {}
    hits = []
    for reference in _find_references(tuple(_signature_of(record) for record in row)):
        here, there = reference.here, reference.there
        since = [k for k in changed if k >= there or there > here]
        for rule, sizes, limit in rules:
            number = _measure(sizes, reference, limit)
            if not number >= limit:
                continue
            others = [k for k in since if changed[k] != rule]
            if any(k == there or _is_near(spreads[here] / spreads[k - 1], limit) for k in others):
                continue
            if there < here and any(changed[k] == rule and k != there for k in since):
                changed[here] = rule
            elif _is_its_own(sizes, reference, limit):
                changed[here] = rule
                hits.append(ScaleHit(rule, row[here], number, row[there]))
    return hits


def find_stretch(
    tallies: Iterable[CallTally], rule: str, limit: float, idle_norms: Mapping[str, bool]
) -> Sequence[CallTally]:
    """Return the longest stretch over which the standard deviation gradually explodes or vanishes.

    A stretch is a series of similar calls. ``tallies`` are in the order in which the model made the
    tensors. The factor between the ends of a stretch is above ``limit``, which is at least 1. Hits
    of the rule and idle norms explain a change, so no stretch contains any. The result is empty if
    there is no such stretch.
    """
    row = [t for t in tallies if t.stats.std and t.call.layer.module_type not in _PASSING]
    sizes = [math.log(t.stats.std or 1.0) * (1 if rule == "exploding" else -1) for t in row]
    # The idle norms before each call are counted in the order in which the model defines them, and
    # in the order of the observed calls: calls are alike only if no idle norm is between them.
    defined, called = dict[str, int](), 0
    for path, number in zip(idle_norms, accumulate(idle_norms.values()), strict=True):
        defined |= dict.fromkeys(("", *accumulate(path.split("."), "{}.{}".format)), number)
    alike: dict[object, list[int]] = {}
    for index, each in enumerate(map(_signature_of, row)):
        key = each.role if role_of(each.module_path).blocks else each.row
        called += idle_norms.get(each.module_path, False)
        place = defined.get(each.module_path.partition(OPERATION)[0].rstrip("/"))
        alike.setdefault((key, place, called), []).append(index)
    found = []
    for group in alike.values():
        pairs = combinations(group, 2)
        start, end = max(pairs, key=lambda pair: sizes[pair[1]] - sizes[pair[0]], default=(0, 0))
        total, part = sizes[end] - sizes[start], [k for k in group if start <= k <= end]
        # A change is not gradual if one step makes up half of its orders of magnitude.
        is_gradual = all(2 * (sizes[b] - sizes[a]) < total for a, b in pairwise(part))
        has_hit = any(rule in each.hits for each in row[start + 1 : end + 1])
        if is_gradual and total > math.log(limit) and not has_hit:
            found.append([row[k] for k in part])
    return max(found, key=len, default=[])


def _measure(sizes: Sequence[float], reference: _Reference, limit: float) -> float:
    # A size is a standard deviation or its reciprocal; a step is the size of a call divided by the
    # size of the call right before. The factor is the ratio of the two sizes, except in two cases.
    # 1. The ratio is below ``limit``, but the ratio and the call's step are both beyond the square
    # root of ``limit``: the factor is the ratio of the two steps, or 0 without the same step.
    # 2. The call is in the first block, so that its counterpart is in the next block: the factor is
    # the ratio of the two steps, or the ratio of the sizes without the same step. It is 0 if the
    # call's step is below the square root of ``limit``, since a change in the first block also
    # affects the next block.
    here, there = reference.here, reference.there
    ratio, step = sizes[here] / sizes[there], sizes[here] / sizes[here - 1]
    more = step / (sizes[there] / sizes[there - 1]) if reference.same_step else 0.0
    if there > here:
        return (more or ratio) if step**2 >= limit else 0.0
    return more if ratio < limit and min(ratio, step) ** 2 >= limit else ratio


def _is_its_own(sizes: Sequence[float], reference: _Reference, limit: float) -> bool:
    here, there = reference.here, reference.there
    step = sizes[here] / sizes[here - 1]
    for other in reference.others:
        unlike = step / (sizes[other] / sizes[other - 1]) if there else sizes[here] / sizes[other]
        if _is_near(unlike, limit):
            return False
    if there > here or step >= limit:
        return True
    return reference.same_step and min(step**2, step * sizes[there - 1] / sizes[there]) >= limit


def _is_near(ratio: float, limit: float) -> bool:
    return ratio * limit > 1 and ratio < limit


@functools.lru_cache(maxsize=64)
def _find_references(row: tuple[_Signature, ...]) -> tuple[_Reference, ...]:
    mates: dict[object, list[int]] = {}
    siblings: dict[object, int] = {}
    for index, signature in enumerate(row):
        mates.setdefault(signature.role, []).append(index)

    def same_step(one: int, two: int) -> bool:
        return min(one, two) > 0 and row[one - 1].role == row[two - 1].role

    references = []
    for here, signature in enumerate(row):
        sibling = siblings.get(signature.row)
        siblings[signature.row] = here
        if not here:
            continue
        before, after = _find_mates(row, here, mates[signature.role])
        later = [index for index in mates[signature.role] if index > here]
        steps = [index for index in later if same_step(here, index)]
        if before is not None:
            is_weak = before == mates[signature.role][0]
            others = tuple((steps if before else later)[:2]) if is_weak else ()
            references.append(_Reference(here, before, same_step(here, before), others))
        elif after is not None:
            references.append(_Reference(here, after, after in steps, tuple(steps[:2])))
        elif sibling is not None:
            references.append(_Reference(here, sibling, False))
    return tuple(references)


def _find_mates(
    row: Sequence[_Signature], here: int, mates: Sequence[int]
) -> tuple[int | None, int | None]:
    # ``mates`` are the indices in ``row`` of all calls of the same role. With nested blocks, the
    # chosen calls, an earlier and a later one, are in another outermost block if possible: hookcli
    # compares ``branch2`` with ``branch2`` of that block, instead of with ``branch1`` of its own.
    role = role_of(row[here].module_path)
    if not role.is_in_block:
        return None, None

    def changed(index: int) -> int:
        pairs = zip(role.blocks, role_of(row[index].module_path).blocks, strict=True)
        return max((n for n, (one, other) in enumerate(pairs) if one != other), default=-1)

    before = min((i for i in reversed(mates) if i < here), key=changed, default=None)
    after = min((i for i in mates if i > here), key=changed, default=None)
    return before, after


def _signature_of(record: LayerRecord | CallTally) -> _Signature:
    call, layout, kind = record.call, record.layout, record.call.layer.module_type
    form = (kind, layout.name, layout.is_spatial, call.call_index, call.output_key)
    return _Signature(call.layer.module_path, form)


def order_by_end(records: Iterable[_Call]) -> list[_Call]:
    """Sort one image's records, or the tallies of one side, by the time when their calls end."""
    ended: list[_Call] = []
    running: list[_Call] = []
    for record in sorted(records, key=lambda each: each.call.order):
        while running and not _is_inside(record, running[-1]):
            ended.append(running.pop())
        running.append(record)
    return ended + running[::-1]


def _is_inside(record: _Call, running: _Call) -> bool:
    path = running.call.layer.module_path
    inside = record.call.layer.module_path.startswith((f"{path}.", f"{path}/"))
    return not path or inside or record.call.order == running.call.order
