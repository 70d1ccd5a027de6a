"""Pairing the calls of a model with the nodes of a graph that does not name its modules."""

from __future__ import annotations

import itertools
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from hookcli.compare.left_out import may_be_idle
from hookcli.distance.axes import FAR, measure_flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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

    Calls with similar values are paired, and between them the longest stretches of calls with equal
    types and shapes, then the last calls, which replace a layer. A convolution of B that no
    BatchNorm follows is taken for a merged one, and paired with A's BatchNorm.

    Args:
        a: the outputs of A's calls by id, in the order in which the calls complete.
        b: the same of B.
        values: the tensors of A and of B by id, as far as they are known.
    """
    kinds_a, kinds_b = (
        {each: _kind(tensor.module_type) for each, tensor in calls.items()} for calls in (a, b)
    )
    norms = {
        one: two
        for one, two in itertools.pairwise(a)
        if kinds_a[one] in _CONVOLUTIONS and kinds_a[two] == _NORM
    }
    if _NORM not in kinds_b.values():
        for one, two in norms.items():
            kinds_a[one], kinds_a[two] = "merged", kinds_a[one]
    merged = {each for each, kind in kinds_a.items() if kind == "merged"}
    known = (
        {each: kept[each] for each in calls if each in kept and each not in merged}
        for calls, kept in zip((a, b), values, strict=True)
    )
    same = _find_same(*known)
    pairs: dict[str, str] = {}
    labels = {each: same.get(each, ("", each)) for each in b}
    for left_a, left_b in _match({each: each for each in a}, labels, pairs):
        keys_a = {each: (kinds_a[each], a[each].shape) for each in left_a}
        keys_b = {each: (kinds_b[each], b[each].shape) for each in left_b}
        for rest_a, rest_b in _match(keys_a, keys_b, pairs):
            rest = [n for n in rest_a if n not in merged and not may_be_idle(a[n].module_type)]
            if rest and rest_b:
                old, new = a[rest[-1]], b[rest_b[-1]]
                if old.shape == new.shape and "float" in new.dtype:
                    pairs[new.call_id] = old.call_id
    taken = {*pairs.values()}
    free = {one: two for one, two in norms.items() if two not in taken}
    return {call_id: free.get(partner, partner) for call_id, partner in pairs.items()}


def _match(
    a: Mapping[str, object], b: Mapping[str, object], pairs: dict[str, str]
) -> Iterator[tuple[list[str], list[str]]]:
    """Pair the longest stretches of calls with equal keys, and yield the calls between them."""
    ids_a, ids_b = [*a], [*b]
    start_a = start_b = 0
    matcher = SequenceMatcher(None, [*a.values()], [*b.values()], autojunk=False)
    for block in matcher.get_matching_blocks():  # the last one is empty, at both ends
        yield ids_a[start_a : block.a], ids_b[start_b : block.b]
        start_a, start_b = block.a + block.size, block.b + block.size
        pairs |= zip(ids_b[block.b : start_b], ids_a[block.a : start_a], strict=True)


def _find_same(a: Mapping[str, Values], b: Mapping[str, Values]) -> dict[str, str]:
    """Return the call of A with the closest values, for each call of B that has a similar one."""
    norms = {call_id: float(np.linalg.norm(each.ravel())) for call_id, each in a.items()}
    found: dict[str, str] = {}
    for call_id, tensor in b.items():
        norm, taken = float(np.linalg.norm(tensor.ravel())), {*found.values()}
        near = [each for each, other in norms.items() if norm and abs(other - norm) <= FAR * norm]
        known = [(measure_flat(a[key], tensor), key in taken, n) for n, key in enumerate(near)]
        distance, _, place = min(known, default=(FAR, False, 0))
        if distance < FAR:
            found[call_id] = near[place]
    return found


def find_norm(calls: Sequence[CallTensor], conv: str) -> str:
    """Return the id of the BatchNorm directly after a convolution; empty if there is none."""
    norms = (two for one, two in itertools.pairwise(calls) if one.call_id == conv)
    return next((each.call_id for each in norms if each.module_type.startswith(NORM)), "")


def _kind(module_type: str) -> str:
    """Return the name that modules of torch and operators of ONNX of one kind have in common."""
    name = re.sub(r"\dd$", "", module_type.removesuffix(f"+{NORM}")).lower()
    return _KINDS.get(name, name)
