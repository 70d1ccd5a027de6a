"""Layouts that follow neither from a module's type nor from a shape: one forward pass shows them.

The watcher keeps only weak references to tensors, so the forward pass needs no more memory.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.hooks.nested import named_tensors
from hookcli.records.layouts import Channels

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.records.calls import Call, LayerInfo

    _Shape = tuple[int, ...]

# Elementwise operations: the output has the layout of the first input.
_ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "exp", "sqrt", "pow", "clamp", "dropout"}
    | {"relu", "relu6", "gelu", "silu", "mish", "elu", "leaky_relu", "sigmoid", "tanh"}
    | {"hardswish", "hardsigmoid", "hardtanh", "softplus", "where", "masked_fill"}
)
# Operations that keep the order of the axes: inputs and outputs with as many axes share a layout.
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
    """Return on which axis the functional operation of this name has its channels."""
    if name in _FIRST or name.startswith("conv") or "pool" in name:
        return Channels.FIRST
    if name in ("linear", "embedding"):
        return Channels.LAST
    if name in _ELEMENTWISE:
        return Channels.BY_VALUE
    if name == "scaled_dot_product_attention":
        return Channels.BY_NOTHING  # its heads are on the axis where maps have rows
    return Channels.BY_AXES if name in _KEEP_AXES else Channels.BY_SHAPE


@dataclass(slots=True)
class _Evidence:
    """The layouts, by shape, of tensors that a running call took or that its parts returned."""

    inputs: dict[_Shape, set[str]] = field(default_factory=dict)
    parts: dict[_Shape, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class LayoutWatcher:
    """Follows one forward pass through the starts and ends of all calls (``hooks.watch``).

    A call may return a tensor that another call returned before: the tensor keeps its layout.
    Otherwise the tensor gets the layout of tensors of the same shape that the call's parts returned
    or, if there are none, that the call took. If a module works elementwise and its input has no
    known layout, its neighbours before it decide. All of these layouts must agree. If a module may
    transpose, no other axis may be as long as the channel axis, since the transposed tensor would
    have the same shape.

    Two more rules hold for operations. An operation that keeps the order of the axes, such as
    ``cat``, has the layout of inputs with as many axes. An output of two axes is NC if, for each
    image, it has all values of an input or one value for each channel of it.

    Attributes:
        size: the height and width of the images that the layers see.
        inferred: the names of the layouts that were inferred for a layer, by its module path.
        own_names: the names of the layouts that follow from a layer's type or the shapes of its
            tensors; an operation also has a question mark for each axis of an output of unknown
            layout.
    """

    size: tuple[int, int]
    inferred: dict[str, set[str]] = field(default_factory=dict)
    own_names: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[int, tuple[weakref.ref[Tensor], str]] = field(default_factory=dict)
    _running: list[_Evidence] = field(default_factory=list)

    def started(self, _call: Call, inputs: object) -> None:
        """Store the layouts of a call's inputs, where they are known."""
        evidence = _Evidence()
        for _, tensor in named_tensors(inputs):
            if name := self._recall(tensor):
                evidence.inputs.setdefault(tuple(tensor.shape), set()).add(name)
        self._running.append(evidence)

    def finished(self, call: Call, output: object) -> None:
        """Store the layouts of the tensors that a call returned."""
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
        """Return a layer with its inferred layout, unless its calls have different layouts."""
        inferred = self.inferred.get(layer.module_path, set())
        own_names = self.own_names.get(layer.module_path, set())
        names = inferred - {name for name in inferred if _has_other(name, inferred | own_names)}
        return replace(layer, inferred=next(iter(names))) if len(names) == 1 else layer

    def _name(self, layer: LayerInfo, tensor: Tensor, evidence: _Evidence) -> str:
        """Return the name of an output's layout; empty if it is unknown."""
        shape = tuple(tensor.shape)
        layout = layer.layout_of(shape, self.size)
        own = "" if layout.channel_axis is None else layout.name
        if not layer.channels.needs_inference or (len(shape) < 3 and not layer.is_operation):
            return own
        name = self._recall(tensor)
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
        elif layer.is_operation:  # its other calls must not lend their layout to this one
            self.own_names.setdefault(layer.module_path, set()).add("?" * len(shape))
        return name or own

    def _recall(self, tensor: Tensor) -> str:
        """Return the layout that a tensor had when a call returned it; empty if none did."""
        reference, name = self._known.get(id(tensor), (None, ""))
        is_same = reference is not None and reference() is tensor
        return name if is_same and len(name) == tensor.dim() else ""  # unsqueeze_ adds an axis


def _has_other(name: str, names: set[str]) -> bool:
    """Return whether any name is a different layout with as many axes."""
    return any(len(other) == len(name) and other != name for other in names)


def _single_name(names: set[str], shape: _Shape, *, transposes: bool) -> str:
    """Return the only name; empty if there are several, or if the tensor may be transposed."""
    if len(names) != 1:
        return ""
    (name,) = names
    return "" if transposes and _is_alike(name, shape) else name


def _is_alike(name: str, shape: _Shape) -> bool:
    """Return whether another axis, apart from the first, is as long as the channel axis."""
    axis = name.index("C")
    return shape[axis] in (*shape[1:axis], *shape[axis + 1 :])


def _derive_layout(inputs: dict[_Shape, set[str]], shape: _Shape, *, keeps_axes: bool) -> str:
    """Return the layout of an operation's output whose shape differs from all its inputs' shapes.

    ``inputs`` has the layouts of the inputs by shape. With ``keeps_axes``, the operation keeps the
    order of the axes.
    """
    if keeps_axes:
        names = {n for given, found in inputs.items() if len(given) == len(shape) for n in found}
        if names:
            return names.pop() if len(names) == 1 else ""
    for given, names in inputs.items() if len(shape) == 2 else ():
        if given[0] == shape[0] and len(names) == 1:
            (name,) = names
            is_channels = given[name.index("C")] == shape[1] and not _is_alike(name, given)
            if is_channels or math.prod(given[1:]) == shape[1]:
                return "NC"
    return ""
