"""Find the channel axis, weights and cost of ONNX operators, and read quantized weights."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.networks.graph_file import guard_onnx, read_small_weights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

# Operators that keep the axes of their first input, and operators whose axis 1 has the channels
_KEEPING = frozenset(
    {"Abs", "Add", "Cast", "CastLike", "Clip", "Concat", "DequantizeLinear", "Div", "Dropout"}
    | {"Floor", "Gather", "Identity", "Max", "Min", "Mul", "Neg", "Pad", "Pow", "QuantizeLinear"}
    | {"Relu", "Resize", "Round", "Slice", "Split", "Sqrt", "Sub", "Upsample", "Where"}
)
_CHANNELS_FIRST = frozenset(
    {"AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace"}
    | {"FusedConv", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "MaxPool"}
    | {"QLinearConv", "SpaceToDepth"}
)
# The two inputs that an operator multiplies
_MULTIPLIED = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "ConvInteger"), (0, 1)),
    **dict.fromkeys(("Gemm", "MatMul", "FusedGemm", "FusedMatMul", "MatMulInteger"), (0, 1)),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits"), (0, 1)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), (0, 3)),
}
# Other operators that multiply matrices, or may do so in a graph of their own
_PRODUCTS = re.compile(
    r"Gemm|MatMul|Conv|Attention|LSTM|GRU|RNN|MoE|Einsum|DFT|STFT|[Ff]ft|^Det$|CDist|Linear(C|R)"
    r"|SVM|Search|^If$|^Loop$|^Scan$|SequenceMap"
)
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")  # any other may hold whole models
# The inputs that are weights, and not scales, zero points, sizes or limits
_WEIGHTS = {
    **dict.fromkeys(("Clip", "DequantizeLinear", "Expand", "Gather", "Pad", "Reshape"), (0,)),
    **dict.fromkeys(("QuantizeLinear", "Resize", "Slice", "Tile", "TopK", "Upsample"), (0,)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (0, 1)),
    "QLinearConv": (3, 8),
    "QLinearMatMul": (0, 3),
    "QGemm": (0, 3, 6),
    "DynamicQuantizeMatMul": (1, 4),
    "MatMulIntegerToFloat": (0, 1, 6),
    "BatchNormalization": (1, 2),  # the others are statistics
}
# A second or later input of these operators is a weight even if it is a single number.
_LAYERS = ("BatchNormalization", "Conv", "ConvTranspose", "Gemm", "PRelu")
# The inputs for which torch writes zeros or ones if the model has no such parameters
_FILLED = {
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "LayerNormalization"), (1, 2)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (5, 6)),  # initial states
    "RMSNormalization": (1,),
}
_WITHOUT_WEIGHTS = (0, 7, 8, 9)  # TensorProto's undefined, int64, string and bool
_ENDING, _TURNED = "_quantized", "_Transposed"  # of names that ONNX Runtime's quantizers give
_UNKNOWN = np.zeros(0), np.zeros(()), np.zeros(0, bool)  # of a weight that hookcli cannot decode


def find_channel_axis(graph: Any, name: str) -> int | None:
    """Return the channel axis of the 4-D input ``name``; None if the operators do not show it."""
    axes = {name: [0, 1, 2, 3]}  # for each axis of a value, the axis of the input
    for node in graph.node:
        known = next((axes[each] for each in node.input if each in axes), None)
        if known is None:
            continue
        if node.op_type in _CHANNELS_FIRST:
            return known[1]
        if node.op_type == "Transpose":
            order = _attributes(node).get("perm", [3, 2, 1, 0])
            if sorted(order) == [0, 1, 2, 3]:
                axes[node.output[0]] = [known[axis] for axis in order]
        elif node.op_type in _KEEPING:
            axes |= dict.fromkeys(node.output, known)
    return None


def list_multiplied(node: Any) -> tuple[str, ...]:
    """Return the names of a node's data, weight and output; empty if the node does not multiply."""
    indices = _MULTIPLIED.get(node.op_type, ())
    return (*(node.input[index] for index in indices), node.output[0]) if indices else ()


def count_flops(node: Any, shapes: Mapping[str, Sequence[int]]) -> int | None:
    names, kind = list_multiplied(node), node.op_type
    if not names:
        return None if node.domain not in _DOMAINS or _PRODUCTS.search(kind) else 0
    if not all(name in shapes for name in names):
        return None
    data, weight, output = (shapes[name] for name in names)
    if "Conv" in kind:
        places = data if kind == "ConvTranspose" else output
        return 2 * math.prod(places) * math.prod(weight[1:])
    attributes = _attributes(node)
    inner = attributes.get("K", data[-2 if attributes.get("transA") else -1])
    return int(2 * math.prod(output) * inner)


def find_weights(graph: Any) -> dict[str, dict[str, int]]:
    """Map each value that depends on no input to the weights that it is made of, with their sizes.

    For example, ``{"w": {"w": 512}, "c": {"w": 512}}`` is the result for a weight and a copy of it.
    """
    filling = [(node, _FILLED.get(node.op_type, ())) for node in graph.node]
    filled = {name for node, each in filling for at in each for name in node.input[at : at + 1]}
    filled |= {n.input[0] for n in graph.node if n.op_type == "Expand" and n.output[0] in filled}
    real = {name for node in graph.node for name in node.input[1:] if node.op_type in _LAYERS}
    found = {each.name: _measure(each.name, each, filled, real) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            value = _attributes(node).get("value")
            name = node.output[0]
            found[name] = {} if value is None else _measure(name, value, filled, real, 2)
        elif node.input and all(name in found for name in node.input if name):
            inner = dict(list_weights(node, found))
            found |= dict.fromkeys(node.output, inner)
    return found


def list_weights(node: Any, found: Mapping[str, Mapping[str, int]]) -> tuple[tuple[str, int], ...]:
    if node.op_type == "MatMulNBits":  # several weights in a byte
        attributes = _attributes(node)
        return ((node.input[1], attributes["K"] * attributes["N"]),)
    indices = _WEIGHTS.get(node.op_type, range(len(node.input)))
    used = [node.input[index] for index in indices if index < len(node.input)]
    scales = {name for name in used if re.sub("_scale$", "_quantized", name) in {*found} - {name}}
    pairs = (pair for name in used if name not in scales for pair in found.get(name, {}).items())
    return tuple(dict.fromkeys(pairs))


def _measure(
    name: str, tensor: Any, filled: Collection[str], real: Collection[str], least: int = 1
) -> dict[str, int]:
    # ``filled`` has names of constants that torch may have filled with 0 or 1 for a missing
    # parameter. ``real`` has names of constants that are weights even if they are single numbers.
    import onnx

    size = math.prod(tensor.dims)
    is_made = re.search("^val_|^onnx::|/", name) is not None  # torch made the name up
    is_number = is_made and size == 1 and name not in real  # torch makes (1,) of a number
    is_weight = len(tensor.dims) > is_number and tensor.data_type not in _WITHOUT_WEIGHTS
    if is_made and name in filled and tensor.data_location != tensor.EXTERNAL:
        values = {*onnx.numpy_helper.to_array(tensor).flat}
        is_weight &= len(values) > 1 or not values < {0, 1}
    return {name: size} if is_weight and size >= least else {}


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


@dataclass(frozen=True, slots=True)
class StoredWeight:
    name: str  # the name of the parameter, such as ``layer1.0.conv1.weight``
    # the numbers that the file computes with; (0,) if hookcli cannot decode them
    values: NDArray[np.float64]
    # the distance of neighbouring numbers, to be broadcast over ``values``; 0 in float32
    step: NDArray[np.float64]
    inside: NDArray[np.bool_]  # False at the ends of the range, where values may have been clipped


def read_stored_weights(file: Path, model: Any) -> Iterator[StoredWeight]:
    # ``model`` is the graph without its weights. A file that is not quantized yields nothing.
    import onnx

    if not any(each.name.endswith(_ENDING) for each in model.graph.initializer):
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
            names_of_scales = (f"{name}_scale", f"{base}_scale")
            scales = [tensors[each] for each in names_of_scales if each in tensors]
            if array.dtype.kind == "f":
                step = np.zeros(()) if array.itemsize > 2 else np.spacing(np.abs(array))
                numbers = array.astype(np.float64), step.astype(np.float64), np.isfinite(array)
            elif base != name and scales and array.dtype.kind in "iu":
                zero = tensors.get(scales[0].name.removesuffix("scale") + "zero_point")
                scale, zero_point = (
                    onnx.numpy_helper.to_array(each).astype(np.float64) if each else np.zeros(())
                    for each in (scales[0], zero)
                )
                numbers = _dequantize(array, scale, zero_point, axes.get(name))
            else:
                numbers = _UNKNOWN
            if base.endswith(_TURNED):  # the shape of a square weight would not show it
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
    step, zero = scale.reshape(shape), zero.reshape(shape if zero.size > 1 else [1] * array.ndim)
    limits = np.iinfo(array.dtype)
    # symmetric ranges of int8 often leave out -128
    inside = (array > limits.min + (limits.min < 0)) & (array < limits.max)
    return (array.astype(np.float64) - zero) * step, step, inside
