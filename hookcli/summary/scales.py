"""Standard deviations that explode or vanish: each call of an image against its counterpart.

Layers of one type do different work: an expansion is not a depthwise convolution, and a query
projection is not a patch embedding. A counterpart has the same role in another block, as
``layer2.3.conv2`` and ``layer2.2.conv2`` do. A layer's role is its module path without the numbers
of its blocks.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.records.calls import OPERATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.layer_records import LayerRecord

_PASSING = ("Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth", "DropPath")
_NUMBER = re.compile(r"(?<![#\d])(?:\d+[a-z](?![A-Za-z\d])|\d+)")  # 3, and 3a of inception3a


@dataclass(frozen=True, slots=True)
class Role:
    """A layer's role in its block, and the block.

    Adjacent numbers, as in ``layer2.3``, count as one number here.

    Attributes:
        name: the module path with a star for each number of a block.
        blocks: the numbers of the blocks, the outermost first.
    """

    name: str
    blocks: tuple[str, ...] = ()

    @property
    def is_in_block(self) -> bool:
        """True if the layer is inside a numbered block, and is not an item of a plain sequence."""
        return bool(self.blocks) and not self.name.endswith("*")


@functools.lru_cache(maxsize=4096)
def role_of(module_path: str) -> Role:
    """Return the role of the layer at ``module_path``.

    A number followed by a name counts a block. A trailing number belongs to the layer (``mlp.3``,
    ``conv2``), unless it is the only number in the path; such layers form a plain sequence
    (``features.3``). Numbers in an operation's name (``op:conv2d``) always belong to the operation.
    """
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
    """A call whose standard deviation is beyond the threshold of a rule.

    Attributes:
        rule: ``exploding`` or ``vanishing``.
        number: how many times larger or smaller its standard deviation is than the other call's.
        against: the other call.
    """

    rule: str
    record: LayerRecord
    number: float
    against: LayerRecord


@dataclass(frozen=True, slots=True)
class _Place:
    """The facts that decide which calls can be compared.

    Attributes:
        form: the module's type, the tensor's layout, and the numbers of the call and the output.
    """

    module_path: str
    form: tuple[str, str, bool, int, str]

    @property
    def role(self) -> tuple[str, object]:
        """A key that calls share if they may be compared from block to block."""
        return role_of(self.module_path).name, self.form

    @property
    def row(self) -> tuple[str, object]:
        """A key that calls share if their layers have the same type and the same parent."""
        return re.sub(r"[./]?[^./]*$", "", self.module_path), self.form


@dataclass(frozen=True, slots=True)
class _Reference:
    """The counterpart of a call.

    Attributes:
        there: the index of the counterpart.
        same_step: the calls right before the two also have the same role.
        others: up to two later calls of the same role, for a counterpart that is not reliable on
            its own: the call must differ from these, too.
    """

    here: int
    there: int
    same_step: bool
    others: tuple[int, ...] = ()


def find_scale_hits(
    records: Iterable[LayerRecord], exploding: float, vanishing: float
) -> list[ScaleHit]:
    """Return the calls at which one image's standard deviation explodes or vanishes.

    A call's counterpart is the call of the same role in the previous block or, for the first block,
    in the next block. Outside of blocks it is the layer of the same type that ran before under the
    same parent. A call without a counterpart is not checked.

    The change must be the call's own. A call's step shows this: its standard deviation divided by
    that of the call right before it. A step counts if it is beyond the threshold. It also counts if
    it is beyond the square root of the threshold and, divided by the counterpart's step, beyond the
    threshold.

    Consequences of a hit are not hits: neither the same change in later layers, until their
    counterparts have changed too, nor the return to the earlier standard deviation.

    The records are the outputs of one image, or their gradients, in the order in which they were
    made; the numbers are thresholds.
    """
    row = [r for r in records if r.stats.std and r.call.layer.module_type not in _PASSING]
    spreads = [record.stats.std or 1.0 for record in row]
    rules = (
        ("exploding", spreads, exploding),
        ("vanishing", [1 / spread for spread in spreads], vanishing),
    )
    changed: dict[int, str] = {}
    hits = []
    for reference in _find_references(tuple(_place_of(record) for record in row)):
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


def _measure(sizes: Sequence[float], reference: _Reference, limit: float) -> float:
    """Return how many times larger a call is than expected from its counterpart.

    This compares the steps if possible, and otherwise the standard deviations. In a first block
    the standard deviation alone is not enough, since a change there also affects the next block.
    """
    here, there = reference.here, reference.there
    ratio, step = sizes[here] / sizes[there], sizes[here] / sizes[here - 1]
    more = step / (sizes[there] / sizes[there - 1]) if reference.same_step else 0.0
    if there > here:
        return (more or ratio) if step**2 >= limit else 0.0
    if ratio < limit and min(ratio, step) ** 2 >= limit:
        return more
    return ratio


def _is_its_own(sizes: Sequence[float], reference: _Reference, limit: float) -> bool:
    """Return whether a call is larger by itself, and not because of the calls before it."""
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
    return 1 / limit < ratio < limit


@functools.lru_cache(maxsize=64)
def _find_references(row: tuple[_Place, ...]) -> tuple[_Reference, ...]:
    """Return the counterparts of all calls that have one."""
    mates: dict[object, list[int]] = {}
    siblings: dict[object, int] = {}
    for index, place in enumerate(row):
        mates.setdefault(place.role, []).append(index)

    def same_step(one: int, two: int) -> bool:
        return min(one, two) > 0 and row[one - 1].role == row[two - 1].role

    references = []
    for here, place in enumerate(row):
        sibling = siblings.get(place.row)
        siblings[place.row] = here
        if not here:
            continue
        before, after = _find_mates(row, here, mates[place.role])
        later = [index for index in mates[place.role] if index > here]
        steps = [index for index in later if same_step(here, index)]
        if before is not None:
            is_weak = before == mates[place.role][0]
            others = tuple((steps if before else later)[:2]) if is_weak else ()
            references.append(_Reference(here, before, same_step(here, before), others))
        elif after is not None:
            references.append(_Reference(here, after, after in steps, tuple(steps[:2])))
        elif sibling is not None:
            references.append(_Reference(here, sibling, False))
    return tuple(references)


def _find_mates(
    row: Sequence[_Place], here: int, mates: Sequence[int]
) -> tuple[int | None, int | None]:
    """Return the calls of the same role in the block before and in the block after.

    With nested blocks, the partner is in a different outermost block if possible: ``branch2`` of
    one block is compared with ``branch2`` of another block, and with its own block's ``branch1``
    only if there is no other.
    """
    role = role_of(row[here].module_path)
    if not role.is_in_block:
        return None, None

    def changed(index: int) -> int:
        others = role_of(row[index].module_path).blocks
        pairs = zip(role.blocks, others, strict=True)
        return max((n for n, (one, other) in enumerate(pairs) if one != other), default=-1)

    before = min((i for i in reversed(mates) if i < here), key=changed, default=None)
    after = min((i for i in mates if i > here), key=changed, default=None)
    return before, after


def _place_of(record: LayerRecord) -> _Place:
    call, layout, kind = record.call, record.layout, record.call.layer.module_type
    form = (kind, layout.name, layout.is_spatial, call.call_index, call.output_key)
    return _Place(call.layer.module_path, form)


def order_by_end(records: Iterable[LayerRecord]) -> list[LayerRecord]:
    """Sort one image's outputs, which come in the order of their calls' starts, by their ends.

    A block starts before its parts and ends after them.
    """
    ended: list[LayerRecord] = []
    running: list[LayerRecord] = []
    for record in records:
        while running and not _is_inside(record, running[-1]):
            ended.append(running.pop())
        running.append(record)
    return ended + running[::-1]


def _is_inside(record: LayerRecord, running: LayerRecord) -> bool:
    """Return whether a call started during another one, or is another tensor of the same call."""
    path = running.call.layer.module_path
    inside = record.call.layer.module_path.startswith((f"{path}.", f"{path}/"))
    return not path or inside or record.call.order == running.call.order
