"""Tensors of a live comparison as arrays of NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hookcli.hooks.dense import to_dense

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

_NUMPY_FLOATS = (torch.float64, torch.float32, torch.float16)


def to_array(tensor: Tensor) -> NDArray[np.generic]:
    """Return the values of a tensor as a NumPy array, which may share memory with the tensor.

    Values of a dtype that NumPy lacks are converted to float32 or complex64.
    """
    dense = to_dense(tensor)
    dense = dense.dequantize() if dense.is_quantized else dense
    if dense.is_floating_point() and dense.dtype not in _NUMPY_FLOATS:
        dense = dense.float()
    dense = dense.to(torch.complex64) if dense.dtype == torch.complex32 else dense
    array: NDArray[np.generic] = dense.cpu().resolve_conj().resolve_neg().numpy()
    return array
