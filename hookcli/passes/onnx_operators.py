"""What the operators of ONNX compute: their layout, their weights, and their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Operators that keep the axes of their first input, and operators whose axis 1 is that of channels
_KEEPING = frozenset(
    {"Add", "Cast", "Clip", "Concat", "DequantizeLinear", "Div", "Identity", "Mul", "Neg", "Pad"}
    | {"Pow", "QuantizeLinear", "Resize", "Slice", "Split", "Sub", "Upsample"}
)
_CHANNELS_FIRST = frozenset(
    {"AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace"}
    | {"FusedConv", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "MaxPool"}
    | {"QLinearConv", "SpaceToDepth"}
)


def find_channel_axis(graph: Any, name: str) -> int | None:
    """Return the axis of a picture's channels that the first operators of a graph show.

    ``name`` is an input of the graph with four axes. None if the operators do not show the axis.
    """
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


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
