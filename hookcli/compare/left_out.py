"""The calls of A that an exported or compiled model computes as a part of other calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.distance.comparison import LeftOut

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hookcli.records.calls import Call

_IDLE = ("Dropout", "Identity", "StochasticDepth", "DropPath", "DropBlock")
_MERGED, _INTO = ("Conv", "Linear", "BatchNorm"), ("BatchNorm", "ReLU", "relu")


def list_left_out(calls: Mapping[str, Call], common: Collection[str]) -> Iterator[LeftOut]:
    """Yield the calls of A that have no counterpart in B, with the reasons.

    Args:
        calls: the calls of A by id, in the order in which they complete.
        common: the ids of the calls of A that have a counterpart.
    """
    after: Call | None = None  # the next call of A that has a counterpart
    found = []
    for call_id, call in reversed([*calls.items()]):
        if call_id in common:
            after = call
        else:
            found.append(LeftOut(call_id, _explain(call, after)))
    yield from reversed(found)


def _explain(call: Call, after: Call | None) -> str:
    kind = call.layer.module_type
    if kind.startswith(_IDLE):
        return "left out, since it changes nothing"
    if after is None:
        return "computed as a part of the model's output"
    if kind.startswith(_MERGED) and after.layer.module_type.startswith(_INTO):
        return f"merged into {after.id}"
    return f"computed as a part of {after.id}"
