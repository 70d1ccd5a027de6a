"""The plain values of any tensor that a layer takes or returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hookcli.errors import NestedTensorError, RequestError

if TYPE_CHECKING:
    from torch import Tensor


def to_dense(tensor: Tensor) -> Tensor:
    """Return the tensor detached and dense; sparse and other layouts are filled in.

    Raises:
        RequestError: the tensor holds no values (meta device), or is nested.
    """
    if tensor.is_meta:
        raise RequestError(
            "a layer returned a tensor on the meta device, which holds no values",
            "build the model on the CPU or a GPU; shapes alone: hookcli layers MODEL",
        )
    if tensor.is_nested:
        raise NestedTensorError
    values = tensor.detach()
    return values if values.layout == torch.strided else values.to_dense()


def name_not_finite(tensor: Tensor) -> str:
    """Return ``NaN``, ``Inf`` or ``NaN and Inf``; empty if all values are finite.

    It is empty, too, for a tensor that holds no values of its own.
    """
    if tensor.is_meta or tensor.is_nested:
        return ""
    values = to_dense(tensor)
    values = values.dequantize() if values.is_quantized else values
    if not (values.is_floating_point() or values.is_complex()) or bool(values.isfinite().all()):
        return ""
    kinds = {"NaN": values.isnan(), "Inf": values.isinf()}
    return " and ".join(name for name, where in kinds.items() if bool(where.any()))
