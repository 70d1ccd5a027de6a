"""List the calls that only one of two models has and that do not count as differences."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING

from hookcli.distance.comparison import LeftOut

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hookcli.distance.comparison import LeftOutKind
    from hookcli.distance.judge import CallTensor

_IDLE = ("dropout", "dropblock", "droppath", "identity", "quantstub", "stochasticdepth")
_KNOWN = {*_IDLE, "alphadropout", "featurealphadropout"}
_MERGED, _INTO = ("Conv", "Linear", "BatchNorm"), ("BatchNorm", "ReLU", "relu")


def list_left_out(
    types: Mapping[str, str],
    common: Collection[str],
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[LeftOut]:
    """Yield the calls of A that B lacks, each with the reason why hookcli does not compare it.

    ``types`` maps the ids of A's calls to the class names of their modules, in running order.
    ``common`` has the ids of A's calls that B also has. ``reasons`` maps call ids to known reasons;
    the reason for ``attention``, for example, also applies to the output ``attention[1]``.
    """
    after = ""  # the next call of A that has a counterpart
    found: list[LeftOut] = []
    several = {call_id.partition("[")[0] for call_id in common if "[" in call_id}
    for before, call_id in reversed([*itertools.pairwise(["", *types])]):
        if call_id in common:
            after = call_id
            continue
        bare = call_id.partition("[")[0]
        if bare in reasons:
            found.append(LeftOut(call_id, "part", f"left out, since {reasons[bare]}"))
        elif bare in several:
            found.append(LeftOut(call_id, "part", "not among the tensors that B shows"))
        else:
            is_end = before.startswith(f"{bare.partition('#')[0]}.") and before not in common
            kind = types[before if is_end else call_id]  # a module is where its last layer is
            found.append(LeftOut(call_id, *_explain(kind, after, types.get(after, ""))))
    yield from reversed(found)


def may_be_idle(module_type: str) -> bool:
    return _plain(module_type).endswith(_IDLE)


def _plain(module_type: str) -> str:
    return module_type.lower().replace("_", "").rstrip("123d")


def find_idle(a: CallTensor | None, b: CallTensor | None) -> LeftOut | None:
    # A class of the user's own may do something whatever its name ends in, such as ``MCDropout``.
    call = a or b
    if (a and b) or call is None or _plain(call.module_type) not in _KNOWN:
        return None
    reason = f"only in {'A' if a else 'B'}, and changes nothing in evaluation mode"
    return LeftOut(call.call_id, "idle", reason)


def _explain(module_type: str, after: str, type_after: str) -> tuple[LeftOutKind, str]:
    if may_be_idle(module_type):
        return "idle", "left out, since it changes nothing"
    if not after:
        return "part", "computed as a part of the model's output"
    if module_type.startswith(_MERGED) and type_after.startswith(_INTO):
        return "merged", f"merged into {after}"
    return "part", f"computed as a part of {after}"
