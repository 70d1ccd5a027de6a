"""Layouts that neither the type of a module nor the shape tells, found by following one forward.

Only weak references to tensors are kept, so the memory of the forward does not grow.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.hooks.nested import named_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.records.calls import Call, LayerInfo

    _Shape = tuple[int, ...]


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

    Attributes:
        size: the height and width of what the layers see.
        inferred: the names of the layouts that were inferred for a layer, by its module path.
        told: the names of those that its type or the shapes of its tensors told.
    """

    size: tuple[int, int]
    inferred: dict[str, set[str]] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
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
        told = self.told.get(layer.module_path, set())
        names = inferred - {name for name in inferred if _has_other(name, inferred | told)}
        return replace(layer, inferred=next(iter(names))) if len(names) == 1 else layer

    def _name(self, layer: LayerInfo, tensor: Tensor, evidence: _Evidence) -> str:
        """Return the name of the layout of an output; empty if it is not known."""
        shape = tuple(tensor.shape)
        layout = layer.layout_of(shape, self.size)
        own = "" if layout.channel_axis is None else layout.name
        if not layer.needs_inference or len(shape) < 3:
            return own
        name = self._recall(tensor)
        if not name:
            shapes = [evidence.parts, evidence.inputs]
            if layer.is_elementwise and self._running:
                shapes.append(self._running[-1].parts)
            names = next((found[shape] for found in shapes if shape in found), set())
            name = _agreed(names, shape, transposes=not layer.is_elementwise)
        if name and name != own:
            self.inferred.setdefault(layer.module_path, set()).add(name)
        elif own:
            self.told.setdefault(layer.module_path, set()).add(own)
        return name or own

    def _recall(self, tensor: Tensor) -> str:
        """Return the name of the layout in which a tensor came out of a call; empty if none did."""
        reference, name = self._known.get(id(tensor), (None, ""))
        return name if reference is not None and reference() is tensor else ""


def _has_other(name: str, names: set[str]) -> bool:
    """Return whether one of the names is of a different layout of as many axes."""
    return any(len(other) == len(name) and other != name for other in names)


def _agreed(names: set[str], shape: _Shape, *, transposes: bool) -> str:
    """Return the only one of the names; empty if there are several, or it may be transposed."""
    if len(names) != 1:
        return ""
    (name,) = names
    axis = name.index("C")
    is_alike = shape[axis] in (*shape[1:axis], *shape[axis + 1 :])
    return "" if transposes and is_alike else name
