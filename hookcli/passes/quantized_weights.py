"""The weights that a quantized ONNX file holds, under the names of the model's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.networks.graph_file import guard_onnx, read_small_weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_ENDING, _TURNED = "_quantized", "_Transposed"  # of names that ONNX Runtime's quantizers give

_UNKNOWN = np.zeros(0), np.zeros(()), np.zeros(0, bool)  # the numbers of this weight


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight or bias in a file.

    Attributes:
        name: the name of the parameter, such as ``layer1.0.conv1.weight``.
        values: the numbers that the file computes with; (0,) if they cannot be told.
        step: the distance of neighbouring numbers, to be broadcast over ``values``; 0 in float32.
        inside: which values lie between the ends of the range of integers. What lies at an end may
            have been clipped.
    """

    name: str
    values: NDArray[np.float64]
    step: NDArray[np.float64]
    inside: NDArray[np.bool_]


def read_stored_weights(file: Path, model: Any) -> Iterator[StoredWeight]:
    """Yield the weights and biases of a quantized file; nothing from a file that is not quantized.

    ``model`` is the graph without its weights, which are read from the ``file`` and beside it.
    """
    import onnx

    names = {each.name for each in model.graph.initializer}
    if not any(name.endswith(_ENDING) for name in names):
        return
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    with guard_onnx(file):
        read_small_weights(file, whole, most=np.iinfo(np.int64).max)
        tensors = {each.name: each for each in whole.graph.initializer}
        axes = {
            node.input[0]: next((each.i for each in node.attribute if each.name == "axis"), 1)
            for node in whole.graph.node
            if node.op_type == "DequantizeLinear"
        }
        for name, tensor in tensors.items():
            array = onnx.numpy_helper.to_array(tensor)
            base = name.removesuffix(_ENDING)
            scales = [
                tensors[each] for each in (f"{name}_scale", f"{base}_scale") if each in tensors
            ]
            if array.dtype.kind == "f":
                step = np.zeros(()) if array.itemsize > 2 else np.spacing(np.abs(array))
                numbers = array.astype(np.float64), step.astype(np.float64), np.isfinite(array)
            elif base != name and scales and array.dtype.kind in "iu":
                zero = tensors.get(scales[0].name.removesuffix("scale") + "zero_point")
                scale, offset = (
                    onnx.numpy_helper.to_array(each).astype(np.float64) if each else np.zeros(())
                    for each in (scales[0], zero)
                )
                numbers = _dequantize(array, scale, offset, axes.get(name))
            else:
                numbers = _UNKNOWN
            if base.endswith(_TURNED):  # the shape of a square weight does not tell
                numbers = numbers[0].T, numbers[1].T, numbers[2].T
            yield StoredWeight(base.removesuffix(_TURNED), *numbers)


def _dequantize(
    array: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], axis: int | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    shape = [1] * array.ndim
    if scale.size > 1:
        fitting = [n for n, length in enumerate(array.shape) if length == scale.size]
        axis = 0 if axis is None and array.ndim > 2 else axis
        if axis is None and len(fitting) != 1:
            return _UNKNOWN
        shape[fitting[0] if axis is None else axis] = scale.size
    step, offset = scale.reshape(shape), zero.reshape(shape if zero.size > 1 else [1] * array.ndim)
    limits = np.iinfo(array.dtype)
    # symmetric ranges of int8 often leave out -128
    inside = (array > limits.min + (limits.min < 0)) & (array < limits.max)
    return (array.astype(np.float64) - offset) * step, step, inside
