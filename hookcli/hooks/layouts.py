"""Layouts that neither the type of a module nor the shape tells, found by following one forward.

Only weak references to tensors are kept, so the memory of the forward does not grow.
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

# These work value by value, so that their output has the layout of their first input.
_ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "exp", "sqrt", "pow", "clamp", "dropout"}
    | {"relu", "relu6", "gelu", "silu", "mish", "elu", "leaky_relu", "sigmoid", "tanh"}
    | {"hardswish", "hardsigmoid", "hardtanh", "softplus", "where", "masked_fill"}
)
# These keep the axes in their order: an output with as many axes as the input has the same ones.
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
    """Return where the functional operation of this name puts channels."""
    if name in _FIRST or name.startswith("conv") or "pool" in name:
        return Channels.FIRST
    if name in ("linear", "embedding"):
        return Channels.LAST
    if name in _ELEMENTWISE:
        return Channels.BY_VALUE
    if name == "scaled_dot_product_attention":
        return Channels.BY_NOTHING  # its heads stand where maps have rows
    return Channels.BY_AXES if name in _KEEP_AXES else Channels.BY_SHAPE


@dataclass(slots=True)
class _Evidence:
    """The layouts, by shape, of tensors that went into a running call or came out of its parts."""

    inputs: dict[_Shape, set[str]] = field(default_factory=dict)
    parts: dict[_Shape, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class LayoutWatcher:
    """Follows one forward through the starts and ends of all calls (``hooks.watch``).

    A tensor that a call returns has the layout that it had when it came out of another call, if it
    is the same tensor. Otherwise it has the layout of the tensors of the same shape that came out
    of the parts of the call or, if there are none, that went into it. If a module works value by
    value and the layout of its input is not known, that of its neighbours before it counts. All of
    them must agree. For a module that may transpose, no other axis may be as long as that of the
    channels, since the transposed tensor would have the same shape.

    Operations are followed in the same way, with two more rules. One that keeps the axes in their
    order, such as ``cat``, has the layout of inputs with as many axes. And an output of two axes is
    NC if it has, for each image, all the values or one for each channel of an input.

    Attributes:
        size: the height and width of what the layers see.
        inferred: the names of the layouts that were inferred for a layer, by its module path.
        own_names: the names of those that its type or the shapes of its tensors give; of an
            operation also a question mark for each axis of an output of which nothing is known.
    """

    size: tuple[int, int]
    inferred: dict[str, set[str]] = field(default_factory=dict)
    own_names: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[int, tuple[weakref.ref[Tensor], str]] = field(default_factory=dict)
    _running: list[_Evidence] = field(default_factory=list)

    def started(self, _call: Call, inputs: object) -> None:
        """Note the inputs of a call whose layout is known."""
        evidence = _Evidence()
        for _, tensor in named_tensors(inputs):
            if name := self._recall(tensor):
                evidence.inputs.setdefault(tuple(tensor.shape), set()).add(name)
        self._running.append(evidence)

    def finished(self, call: Call, output: object) -> None:
        """Note the layouts of what a call returned."""
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
        """Return a layer with the layout inferred for it, if no call of it has another."""
        inferred = self.inferred.get(layer.module_path, set())
        own_names = self.own_names.get(layer.module_path, set())
        names = inferred - {name for name in inferred if _has_other(name, inferred | own_names)}
        return replace(layer, inferred=next(iter(names))) if len(names) == 1 else layer

    def _name(self, layer: LayerInfo, tensor: Tensor, evidence: _Evidence) -> str:
        """Return the name of the layout of an output; empty if it is not known."""
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
        """Return the name of the layout in which a tensor came out of a call; empty if none did."""
        reference, name = self._known.get(id(tensor), (None, ""))
        is_same = reference is not None and reference() is tensor
        return name if is_same and len(name) == tensor.dim() else ""  # unsqueeze_ adds an axis


def _has_other(name: str, names: set[str]) -> bool:
    """Return whether one of the names is of a different layout of as many axes."""
    return any(len(other) == len(name) and other != name for other in names)


def _single_name(names: set[str], shape: _Shape, *, transposes: bool) -> str:
    """Return the only one of the names; empty if there are several, or it may be transposed."""
    if len(names) != 1:
        return ""
    (name,) = names
    return "" if transposes and _is_alike(name, shape) else name


def _is_alike(name: str, shape: _Shape) -> bool:
    """Return whether another axis besides the first is as long as that of the channels."""
    axis = name.index("C")
    return shape[axis] in (*shape[1:axis], *shape[axis + 1 :])


def _derive_layout(inputs: dict[_Shape, set[str]], shape: _Shape, *, keeps_axes: bool) -> str:
    """Return the layout of an operation's output whose shape is none of its inputs'.

    ``inputs`` has the layouts of the inputs by shape. With ``keeps_axes``, the operation keeps the
    axes in their order.
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
