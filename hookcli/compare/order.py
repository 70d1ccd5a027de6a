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
    from collections.abc import Mapping, Sequence

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

    The longest stretches of calls with equal values, or with equal types and shapes, are paired. If
    only A has BatchNorms, B's convolutions are taken for merged ones, and paired with A's
    BatchNorms. Between two stretches, the last calls are paired if their shapes are equal.

    Args:
        a: the outputs of A's calls by id, in the order in which the calls complete.
        b: the same of B.
        values: the tensors of A and of B by id, as far as they are known.
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
    silent = {each for each in ids_a if may_be_idle(a[each].module_type)}
    silent |= {each for each, kind in zip(ids_a, kinds_a, strict=True) if kind == "merged"}
    same = _find_same(*values)
    known = {*same.values()}
    one: list[object] = [(kind, a[each].shape) for kind, each in zip(kinds_a, ids_a, strict=True)]
    two: list[object] = [(kind, b[each].shape) for kind, each in zip(kinds_b, ids_b, strict=True)]
    one = [each if each in known else key for each, key in zip(ids_a, one, strict=True)]
    two = [same.get(each, key) for each, key in zip(ids_b, two, strict=True)]
    blocks = SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks()
    pairs: dict[str, str] = {}
    start_a = start_b = 0
    for block in blocks:  # the last one is empty, at both ends
        left_a, left_b = ids_a[start_a : block.a], ids_b[start_b : block.b]
        left_a = [each for each in left_a if each not in silent]
        if left_a and left_b:  # nodes that replace a layer
            last_a, last_b = a[left_a[-1]], b[left_b[-1]]
            if last_a.shape == last_b.shape and "float" in last_b.dtype:
                pairs[last_b.call_id] = last_a.call_id
        start_a, start_b = block.a + block.size, block.b + block.size
        pairs |= zip(ids_b[block.b : start_b], ids_a[block.a : start_a], strict=True)
    return pairs


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
