"""The calls of A that an exported or compiled model computes as a part of other calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.distance.comparison import LeftOut

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hookcli.distance.comparison import LeftOutKind

_IDLE = (
    "Dropout",
    "Identity",
    "QuantStub",
    "DeQuantStub",
    "StochasticDepth",
    "DropPath",
    "DropBlock",
)
_MERGED, _INTO = ("Conv", "Linear", "BatchNorm"), ("BatchNorm", "ReLU", "relu")


def is_idle(module_type: str) -> bool:
    """Return whether a module of a type changes nothing in evaluation mode."""
    return module_type.startswith(_IDLE)


def list_left_out(
    types: Mapping[str, str], common: Collection[str], reasons: Mapping[str, str] | None = None
) -> Iterator[LeftOut]:
    """Yield the calls of A that have no counterpart in B, with the reasons.

    Args:
        types: the type of the module of each call of A, by call id, in the order in which the calls
            complete.
        common: the ids of the calls of A that have a counterpart.
        reasons: what B says about calls that it lacks, by call id.
    """
    after = ""  # the next call of A that has a counterpart
    found: list[LeftOut] = []
    ids = [*types]
    for place, call_id in reversed([*enumerate(ids)]):
        if call_id in common:
            after = call_id
            continue
        bare = call_id.partition("[")[0]
        if bare in (reasons or {}):
            found.append(LeftOut(call_id, "part", f"left out, since {(reasons or {})[bare]}"))
            continue
        if bare != call_id and any(each.startswith(f"{bare}[") for each in common):
            found.append(LeftOut(call_id, "part", "not among the tensors that B shows"))
            continue
        last = call_id  # a module is where its last layer is
        for before in reversed(ids[:place]):
            if not before.startswith(f"{bare.partition('#')[0]}."):
                break
            if not is_idle(types[before]):
                last = last if before in common else before
                break
        found.append(LeftOut(call_id, *_explain(types[last], after, types.get(after, ""))))
    yield from reversed(found)


def _explain(module_type: str, after: str, type_after: str) -> tuple[LeftOutKind, str]:
    if is_idle(module_type):
        return "idle", "left out, since it changes nothing"
    if not after:
        return "part", "computed as a part of the model's output"
    if module_type.startswith(_MERGED) and type_after.startswith(_INTO):
        return "merged", f"merged into {after}"
    return "part", f"computed as a part of {after}"
