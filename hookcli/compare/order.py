"""Pairing the calls of a model with the nodes of a graph that does not name its modules."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.distance.judge import CallTensor

# The operators of ONNX that compute modules of torch with other names, as a common name.
_KINDS = {
    "adaptiveavgpool": "globalaveragepool",
    "batchnorm": "batchnormalization",
    "cat": "concat",
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
_CONVOLUTIONS, _NORM = ("conv", "convtranspose"), "batchnormalization"
NORM = "BatchNorm"  # the start of the names of its classes


def pair_by_order(a: Mapping[str, CallTensor], b: Mapping[str, CallTensor]) -> dict[str, str]:
    """Return the id of the call of A for each call id of B that has a counterpart.

    The longest stretches of calls with equal types and shapes are paired. If only A has
    BatchNorms, B's convolutions are taken for merged ones, and paired with A's BatchNorms.

    Args:
        a: the outputs of A's calls by id, in the order in which the calls complete.
        b: the same of B.
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
    blocks = SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks()
    return {
        ids_b[block.b + place]: ids_a[block.a + place]
        for block in blocks
        for place in range(block.size)
    }


def find_norm(calls: Sequence[CallTensor], conv: str) -> str | None:
    """Return the id of the BatchNorm directly after a convolution; None if there is none."""
    norms = (two for one, two in pairwise(calls) if one.call_id == conv)
    return next((each.call_id for each in norms if each.module_type.startswith(NORM)), None)


def _kind(module_type: str) -> str:
    """Return the name that modules of torch and operators of ONNX of one kind have in common."""
    name = re.sub(r"\dd$", "", module_type.removesuffix(f"+{NORM}")).lower()
    return _KINDS.get(name, name)
