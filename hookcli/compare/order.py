"""Pairing the calls of a model with the nodes of a graph that does not name its modules."""

from __future__ import annotations

import itertools
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from hookcli.distance.axes import SAME, is_same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from difflib import Match

    from numpy.typing import NDArray

    from hookcli.distance.judge import CallTensor

    Values = NDArray[np.generic]

# The operators of ONNX that compute modules of torch with other names, as a common name.
_KINDS = {
    "adaptiveavgpool": "globalaveragepool",
    "batchnorm": "batchnormalization",
    "cat": "concat",
    "fusedconv": "relu",  # a convolution of ONNX Runtime with its activation
    "groupnorm": "groupnormalization",
    "instancenorm": "instancenormalization",
    "layernorm": "layernormalization",
    "avgpool": "averagepool",
    "linear": "gemm",
    "matmul": "gemm",
    "reducemean": "globalaveragepool",
    "mean": "globalaveragepool",
    "multiheadattention": "attention",
}
NORM = "BatchNorm"  # the start of the names of its classes
_CONVOLUTIONS, _NORM = ("conv", "convtranspose"), "batchnormalization"


def pair_by_order(
    a: Mapping[str, CallTensor],
    b: Mapping[str, CallTensor],
    values: tuple[Mapping[str, Values], Mapping[str, Values]] = ({}, {}),
) -> dict[str, str]:
    """Return the id of the call of A for each call id of B that has a counterpart.

    The longest stretches of calls with equal values are paired, and between them the longest
    stretches of calls with equal types and shapes.

    Args:
        a: the outputs of A's calls by id, in the order in which the calls complete.
        b: the same of B.
        values: the tensors of A and of B by id, as far as they are known.
    """
    ids_a, ids_b = [*a], [*b]
    pairs: dict[str, str] = {}
    start_a = start_b = 0
    for block in _match(*_label(ids_a, ids_b, values)):  # the last one is empty, at both ends
        of_a, of_b = ids_a[start_a : block.a], ids_b[start_b : block.b]
        pairs |= _pair_kinds({each: a[each] for each in of_a}, {each: b[each] for each in of_b})
        start_a, start_b = block.a + block.size, block.b + block.size
        pairs |= zip(ids_b[block.b : start_b], ids_a[block.a : start_a], strict=True)
    return pairs


def _match(one: Sequence[object], two: Sequence[object]) -> list[Match]:
    return SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks()


def _label(
    a: Sequence[str], b: Sequence[str], values: tuple[Mapping[str, Values], Mapping[str, Values]]
) -> tuple[list[str], list[str]]:
    """Return for each call the first call of A with the same values, or its own id and side."""
    norms: dict[str, float] = {}

    def find(key: str, tensor: Values | None, side: str) -> str:
        if tensor is None or tensor.dtype.kind != "f":
            return f"{key} in {side}"
        norm = float(np.linalg.norm(tensor.ravel()))
        near = (each for each, other in norms.items() if abs(other - norm) <= SAME * other)
        same = (each for each in near if norm and is_same(values[0][each], tensor))
        found = next(same, key if side == "A" else f"{key} in B")
        if side == "A":
            norms.setdefault(found, norm)
        return found

    of_a = [find(key, values[0].get(key), "A") for key in a]
    return of_a, [find(key, values[1].get(key), "B") for key in b]


def _pair_kinds(a: Mapping[str, CallTensor], b: Mapping[str, CallTensor]) -> dict[str, str]:
    """Pair calls with equal types and shapes.

    If only A has BatchNorms, B's convolutions are taken for merged ones, and paired with A's
    BatchNorms.
    """
    ids_a, ids_b = [*a], [*b]
    kinds_a, kinds_b = (
        [_kind(tensor.module_type) for tensor in calls.values()] for calls in (a, b)
    )
    if _NORM not in kinds_b:
        merged = [
            place
            for place, kind in enumerate(kinds_a[:-1])
            if kind in _CONVOLUTIONS and kinds_a[place + 1] == _NORM
        ]
        for place in merged:
            kinds_a[place], kinds_a[place + 1] = "merged", kinds_a[place]
    one = [(kind, a[each].shape) for kind, each in zip(kinds_a, ids_a, strict=True)]
    two = [(kind, b[each].shape) for kind, each in zip(kinds_b, ids_b, strict=True)]
    blocks = _match(one, two)
    return {
        ids_b[block.b + place]: ids_a[block.a + place]
        for block in blocks
        for place in range(block.size)
    }


def find_norm(calls: Sequence[CallTensor], conv: str) -> str:
    """Return the id of the BatchNorm directly after a convolution; empty if there is none."""
    norms = (two for one, two in itertools.pairwise(calls) if one.call_id == conv)
    return next((each.call_id for each in norms if each.module_type.startswith(NORM)), "")


def _kind(module_type: str) -> str:
    """Return the name that modules of torch and operators of ONNX of one kind have in common."""
    name = re.sub(r"\dd$", "", module_type.removesuffix(f"+{NORM}")).lower()
    return _KINDS.get(name, name)
