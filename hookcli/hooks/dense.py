"""The plain values of any tensor that a layer takes or returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hookcli.errors import NestedTensorError, RequestError
from hookcli.hooks.nested import tensors_in

if TYPE_CHECKING:
    from torch import Tensor


def to_dense(tensor: Tensor) -> Tensor:
    """Return a tensor detached and dense; refuse one that is nested or has no values."""
    if tensor.is_meta:
        raise RequestError(
            "a layer returned a tensor on the meta device, which holds no values",
            "build the model on the CPU or a GPU; shapes alone: `hookcli.layers(MODEL)`",
        )
    if tensor.is_nested:
        raise NestedTensorError
    values = tensor.detach()
    return values if values.layout == torch.strided else values.to_dense()


def memory_of(tensor: Tensor) -> int:
    """Return a number that all tensors with the same memory have in common."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse tensors, and inside torch.vmap
        return id(tensor)


def list_not_finite(nested: object) -> frozenset[str]:
    """Return which of ``NaN`` and ``Inf`` occur in the tensors of a nested value."""
    found = set[str]()
    for tensor in tensors_in(nested):
        if tensor.is_meta or tensor.is_nested:
            continue
        values = to_dense(tensor)
        values = values.dequantize() if values.is_quantized else values
        is_float = values.is_floating_point() or values.is_complex()
        if is_float and not bool(values.isfinite().all()):
            kinds = {"NaN": values.isnan(), "Inf": values.isinf()}
            found |= {kind for kind, where in kinds.items() if bool(where.any())}
    return frozenset(found)
