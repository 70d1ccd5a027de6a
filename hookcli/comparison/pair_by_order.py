"""Pair the calls of a model with nodes of an exported graph that do not name their modules."""

from __future__ import annotations

import itertools
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from hookcli.comparison.left_out import may_be_idle
from hookcli.distance.metrics import FAR, measure_flat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from difflib import Match

    from hookcli.distance.judge import CallTensor
    from hookcli.distance.metrics import TensorArray

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
_MOVES = {"Concat", "Gather", "Reshape", "Slice", "Split", "Transpose"}  # of ONNX: no layer
_NEARBY = 20  # calls: the farthest that the branches of a block are swapped
NORM = "BatchNorm"  # the start of the names of its classes
_CONVOLUTIONS, _NORM = ("conv", "convtranspose"), "batchnormalization"


def pair_by_order(
    a: Mapping[str, CallTensor],
    b: Mapping[str, CallTensor],
    values: tuple[Mapping[str, TensorArray], Mapping[str, TensorArray]] = ({}, {}),
) -> dict[str, str]:
    """Pair calls of B with calls of A, and map the id of each paired call of B to the id in A."""
    # Calls are in running order. ``values`` has the known tensors of A, by call id, and of B.
    # hookcli first pairs calls with similar values, in any order; then the longest sequences of
    # calls with equal types and shapes; then single such calls nearby, because a tool may swap
    # branches; then the last calls between two pairs, which replace a layer. A convolution of B
    # whose BatchNorm has no counterpart counts as merged, and is paired with A's BatchNorm.
    kinds_a, kinds_b = (
        {each: _kind(tensor.module_type) for each, tensor in calls.items()} for calls in (a, b)
    )
    norms = {
        one: two
        for one, two in itertools.pairwise(a)
        if kinds_a[one] in _CONVOLUTIONS and kinds_a[two] == _NORM
    }
    merged = {each for each in norms if _NORM not in kinds_b.values()}
    kinds_a |= {norms[each]: kinds_a[each] for each in merged}
    known = {each: values[0][each] for each in a if each in values[0] and each not in merged}
    moves = {each for each, tensor in b.items() if tensor.module_type in _MOVES}
    similar = _find_same(known, {each: values[1][each] for each in b if each in values[1]}, moves)
    pairs = {each: partner for each, partner in similar.items() if partner}
    if any(each.module_type == "FusedConv" for each in b.values()):
        left = itertools.pairwise(each for each in a if each not in merged)
        merged |= {one for one, two in left if (kinds_a[one], kinds_a[two]) == ("conv", "relu")}
    out = {each for each in a if each in merged or may_be_idle(a[each].module_type)}
    paired = {*pairs.values()}
    keys_a = {
        n: n if n in paired else _key(a[n], kinds_a[n]) for n in a if n in paired or n not in out
    }
    keys_b = {n: similar.get(n, _key(b[n], kinds_b[n])) for n in b if similar.get(n) != ""}
    gaps: list[tuple[list[str], list[str]]] = []
    for ids_a, ids_b in _split([*keys_a], [*keys_b], pairs):
        start_a = start_b = 0
        kinds = [keys_a[each] for each in ids_a], [keys_b[each] for each in ids_b]
        for block in _match(*kinds):  # the last one is empty, at both ends
            gaps.append((ids_a[start_a : block.a], ids_b[start_b : block.b]))
            start_a, start_b = block.a + block.size, block.b + block.size
            pairs |= zip(ids_b[block.b : start_b], ids_a[block.a : start_a], strict=True)
    _pair_nearest(keys_a, keys_b, pairs)
    for gap_a, gap_b in gaps:
        rest, ends = [n for n in gap_a if n not in pairs.values()], gap_b[-1:]
        if rest and ends and ends[0] not in pairs:
            old, new = a[rest[-1]], b[ends[0]]
            if old.shape == new.shape and "float" in new.dtype and new.module_type not in _MOVES:
                pairs[new.call_id] = old.call_id
    taken = {*pairs.values()}
    free = {one: two for one, two in norms.items() if two not in taken and one not in paired}
    return {each: free.get(partner, partner) for each, partner in pairs.items()}


def _key(call: CallTensor, kind: str) -> tuple[object, ...]:
    return kind, call.shape, "int" in call.dtype


def _match(a: Sequence[object], b: Sequence[object]) -> list[Match]:
    return SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()


def _split(
    a: list[str], b: list[str], pairs: Mapping[str, str]
) -> list[tuple[list[str], list[str]]]:
    """Cut the lists of A's and B's ids at each pair, and return the pieces between the cuts."""
    # ``a`` = 1 2 3 and ``b`` = 4 5 6 with ``pairs`` {5: 2} (B to A) give ([1], [4]) and ([3], [6]).
    # A pair that other pairs cross, since A and B run their calls in different orders, is no cut.
    taken = {*pairs.values()}
    in_a = [each for each in a if each in taken]
    in_b = [each for each in b if each in pairs]
    ends = [
        (a.index(in_a[block.a + n]), b.index(in_b[block.b + n]))
        for block in _match(in_a, [pairs[each] for each in in_b])
        for n in range(block.size)
    ]
    starts = [(0, 0), *((one + 1, two + 1) for one, two in ends)]
    pieces = zip(starts, [*ends, (len(a), len(b))], strict=True)
    return [(a[one:end_one], b[two:end_two]) for (one, two), (end_one, end_two) in pieces]


def _pair_nearest(a: Mapping[str, object], b: Mapping[str, object], pairs: dict[str, str]) -> None:
    indices = {each: index for index, each in enumerate(a)}
    last = 0  # the index of the counterpart of the call before
    for each, key in b.items():
        if each not in pairs:
            free = a.keys() - {*pairs.values()}
            far = [(abs(indices[n] - last), n) for n in free if a[n] == key]
            if far and min(far)[0] < _NEARBY:
                pairs[each] = min(far)[1]
        last = indices[pairs[each]] if each in pairs else last


def _find_same(
    a: Mapping[str, TensorArray], b: Mapping[str, TensorArray], moves: Collection[str]
) -> dict[str, str]:
    """Map the id of each call of B to the call of A with the closest values, if similar."""
    # If several calls of B have the same closest call of A, the closest of them is paired,
    # preferably one that computes something (not in ``moves``). The others pass its values on: "".
    norms = {call_id: float(np.linalg.norm(each.ravel())) for call_id, each in a.items()}
    # by the id in A: whether the call of B is a move, its distance, index and id
    taken: dict[str, tuple[bool, float, int, str]] = {}
    found: dict[str, str] = {}
    for turn, (call_id, tensor) in enumerate(b.items()):
        norm = float(np.linalg.norm(tensor.ravel()))
        near = [each for each, other in norms.items() if norm and abs(other - norm) <= FAR * norm]
        known = [(measure_flat(a[key], tensor), key in taken, n) for n, key in enumerate(near)]
        distance, _, index = min(known, default=(FAR, False, 0))
        if distance < FAR:
            key = near[index]
            own = call_id in moves, distance, turn, call_id
            best = min(taken.get(key, own), own)
            found |= {taken.get(key, best)[-1]: "", call_id: "", best[-1]: key}
            taken[key] = best
    return found


def find_norm(calls: Sequence[CallTensor], conv: str) -> str:
    norms = (two for one, two in itertools.pairwise(calls) if one.call_id == conv)
    return next((each.call_id for each in norms if each.module_type.startswith(NORM)), "")


def _kind(module_type: str) -> str:
    name = re.sub(r"\dd$", "", module_type.removesuffix(f"+{NORM}")).lower()
    return _KINDS.get(name, name)
