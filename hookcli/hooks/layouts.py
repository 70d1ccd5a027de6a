"""Inferring layouts during a forward pass, if neither the module's type nor a shape shows them.

A layout names the axes of a tensor, as in NCHW. ``ChannelTrails`` follows the channels through the
operations of the model. Where it loses them, the layouts of other tensors may still decide.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.hooks.channel_trails import ChannelTrails
from hookcli.hooks.nested import named_tensors
from hookcli.records.layouts import Channels

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.records.calls import Call, LayerInfo

    _Shape = tuple[int, ...]

# Elementwise operations: the output has the layout of an input of the same shape.
_ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "exp", "sqrt", "pow", "clamp", "dropout"}
    | {"relu", "relu6", "gelu", "silu", "mish", "elu", "leaky_relu", "sigmoid", "tanh"}
    | {"hardswish", "hardsigmoid", "hardtanh", "softplus", "where", "masked_fill"}
)
# Operations that keep the order of the axes: the output has the layout of inputs with as many axes.
_KEEP_AXES = frozenset(
    {"cat", "chunk", "split", "narrow", "getitem", "pad", "roll", "flip", "softmax", "normalize"}
    | {"mean", "sum", "amax", "amin", "var", "std", "layer_norm", "rms_norm"}
)
_FIRST = frozenset(
    {"batch_norm", "group_norm", "instance_norm", "local_response_norm"}
    | {"interpolate", "upsample", "grid_sample", "pixel_shuffle", "pixel_unshuffle"}
    | {"channel_shuffle"}
)


def channels_of_operation(name: str) -> Channels:
    """Return the position of the channel axis in the output of a functional operation.

    If the name does not show the position, return how the position follows from the inputs.
    """
    if name in _FIRST or name.startswith("conv") or "pool" in name:
        return Channels.FIRST
    if name in ("linear", "embedding"):
        return Channels.LAST
    if name in _ELEMENTWISE:
        return Channels.BY_VALUE
    if name == "scaled_dot_product_attention":
        return Channels.BY_NOTHING  # its heads are on the axis where maps have rows
    return Channels.BY_AXES if name in _KEEP_AXES else Channels.BY_SHAPE


# The names of layouts, by the number of axes and the axis of the channels.
_BY_AXIS = {
    2: {1: "NC"},
    3: {1: "NCL", 2: "NLC"},
    4: {1: "NCHW", 3: "NHWC"},
    5: {1: "NCDHW", 4: "NDHWC"},
}


@dataclass(slots=True)
class _Evidence:
    """From what the layout of a running call's output can be inferred.

    A layout is the meaning of each axis of a tensor, named as ``NCHW`` or ``NLC``.

    Attributes:
        inputs: the layouts of the call's inputs, by shape.
        parts: the layouts of the tensors that calls inside the running call returned, by shape.
    """

    inputs: dict[_Shape, set[str]] = field(default_factory=dict)
    parts: dict[_Shape, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class LayoutWatcher:
    """Infers layouts in one forward pass; ``started`` and ``finished`` are listeners of ``watch``.

    ``trails`` decides, if it could follow the channels of an output. For all other outputs: if an
    earlier call returned the same tensor as this call, the tensor keeps its layout. Otherwise
    the output gets the layout of known tensors with the same shape. hookcli searches first among
    the outputs of calls inside this call, then among the inputs of this call, and for an
    elementwise layer also among the outputs of preceding calls in the same enclosing call. The
    first group with a tensor of this shape decides, if all its tensors of this shape have the same
    layout. A layer that is not elementwise may transpose: if another axis is as long as the channel
    axis, the layout remains unknown, because the transposed tensor would have the same shape.

    Two more rules hold for operations. If an operation keeps the order of the axes, as ``cat``
    does, the output has the layout of the inputs that have as many axes as the output. An output
    with two axes is NC if the length of its second axis is the number of an input's channels, or
    the number of an input's values per image.

    Attributes:
        size: the height and width of the network's input.
        trails: follows the channels in the same forward pass.
        inferred: the names of the layouts that were inferred for each layer, by module path.
        own_names: the names of the layouts that a layer's type or the shape of its output shows, by
            module path. If hookcli cannot find the layout of an operation's output, the name is a
            question mark for each axis.
    """

    size: tuple[int, int]
    trails: ChannelTrails = field(default_factory=ChannelTrails)
    inferred: dict[str, set[str]] = field(default_factory=dict)
    own_names: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[int, tuple[weakref.ref[Tensor], str]] = field(default_factory=dict)
    _running: list[_Evidence] = field(default_factory=list)

    def started(self, _call: Call, inputs: object) -> None:
        """Store the layouts (the meaning of the axes) of a call's inputs, as far as known."""
        evidence = _Evidence()
        for _, tensor in named_tensors(inputs):
            if name := self._recall(tensor):
                evidence.inputs.setdefault(tuple(tensor.shape), set()).add(name)
        self._running.append(evidence)

    def finished(self, call: Call, output: object) -> None:
        """Infer and store the layouts of the tensors that a call returned."""
        evidence = self._running.pop()
        for _, tensor in named_tensors(output):
            if tensor.is_nested:
                continue
            name = self._name(call.layer, tensor, evidence)
            if not name:
                continue
            if self._recall(tensor) != name:
                self._known[id(tensor)] = (weakref.ref(tensor), name)
            if self._running:
                parts = self._running[-1].parts
                parts.setdefault(tuple(tensor.shape), set()).add(name)

    def infer(self, layer: LayerInfo) -> LayerInfo:
        """Return ``layer`` with its inferred layouts, one for each number of axes.

        If the layer's calls have different layouts with as many axes, no axis is known to hold the
        channels.
        """
        inferred = self.inferred.get(layer.module_path, set())
        every = inferred | self.own_names.get(layer.module_path, set())
        names = {"?" * len(each) if _has_other(each, every) else each for each in inferred}
        return replace(layer, inferred=tuple(sorted(names)))

    def _name(self, layer: LayerInfo, tensor: Tensor, evidence: _Evidence) -> str:
        """Return the name of the layout of ``tensor``, an output of ``layer``; empty if unknown.

        The function also records the name in ``inferred`` or ``own_names``.
        """
        shape = tuple(tensor.shape)
        layout = layer.layout_of(shape, self.size)
        own = "" if layout.channel_axis is None else layout.name
        if not layer.channels.needs_inference or (len(shape) < 3 and not layer.is_operation):
            return own
        name = _name_axes(self.trails.axes_of(tensor), len(shape), own) or self._recall(tensor)
        if not name:
            shapes = [evidence.parts, evidence.inputs]
            if layer.channels.is_elementwise and self._running:
                shapes.append(self._running[-1].parts)
            names = next((found[shape] for found in shapes if shape in found), set())
            is_input = shape in evidence.inputs or not layer.is_operation
            transposes = not (layer.channels.is_elementwise and is_input)
            name = _single_name(names, shape, transposes=transposes)
            if not name and layer.is_operation:
                keeps_axes = layer.channels is Channels.BY_AXES
                name = _derive_layout(evidence.inputs, shape, keeps_axes=keeps_axes)
        if name and name != own:
            self.inferred.setdefault(layer.module_path, set()).add(name)
        elif own:
            self.own_names.setdefault(layer.module_path, set()).add(own)
        elif layer.is_operation:  # the layout of its other calls does not hold for this call
            self.own_names.setdefault(layer.module_path, set()).add("?" * len(shape))
        return name or own

    def _recall(self, tensor: Tensor) -> str:
        """Return the name of the layout that ``finished`` stored for a tensor; empty if none."""
        reference, name = self._known.get(id(tensor), (None, ""))
        is_same = reference is not None and reference() is tensor
        return name if is_same and len(name) == tensor.dim() else ""  # unsqueeze_ adds an axis


def _name_axes(axes: tuple[int, ...] | None, count: int, own: str) -> str:
    """Return the name of a layout with ``count`` axes, given those of ``ChannelTrails``.

    The name is a question mark for each axis if none of them holds the channels, and empty if
    ``axes`` is None. If the channels are split, as into heads, a layer of the layout ``own`` may
    still have channels.
    """
    if axes is None:
        return ""
    is_clear = len(axes) == 1 or (axes and own)
    return _BY_AXIS.get(count, {}).get(axes[0], "?" * count) if is_clear else "?" * count


def _has_other(name: str, names: set[str]) -> bool:
    """Return whether ``names`` has a different layout with as many axes as ``name``."""
    return any(len(other) == len(name) and other != name for other in names)


def _single_name(names: set[str], shape: _Shape, *, transposes: bool) -> str:
    """Return the only name in ``names``; empty if there is no name or more than one.

    With ``transposes``, the layer may have swapped axes of its input: the result is then also empty
    if another axis of ``shape`` is as long as the channel axis.
    """
    if len(names) != 1:
        return ""
    (name,) = names
    return "" if transposes and "C" in name and _is_alike(name, shape) else name


def _is_alike(name: str, shape: _Shape) -> bool:
    """Return whether another axis, apart from the first, is as long as the channel axis.

    ``name`` is the name of the layout, such as NCHW.
    """
    axis = name.index("C")
    return shape[axis] in (*shape[1:axis], *shape[axis + 1 :])


def _derive_layout(inputs: dict[_Shape, set[str]], shape: _Shape, *, keeps_axes: bool) -> str:
    """Return the name of the layout of an operation's output; empty if no rule applies.

    Args:
        inputs: the names of the known layouts of the inputs, by shape.
        shape: the shape of the output.
        keeps_axes: whether the operation keeps the order of the axes.
    """
    if keeps_axes:
        names = {n for given, found in inputs.items() if len(given) == len(shape) for n in found}
        if names:
            return names.pop() if len(names) == 1 else ""
    for given, names in inputs.items() if len(shape) == 2 else ():
        if given[0] == shape[0] and len(names) == 1 and "C" in (name := next(iter(names))):
            is_channels = given[name.index("C")] == shape[1] and not _is_alike(name, given)
            if is_channels or math.prod(given[1:]) == shape[1]:
                return "NC"
    return ""
