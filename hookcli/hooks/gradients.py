"""Gradients of what goes into modules and comes out of them, and of parameters.

``register_full_backward_hook`` raises on models that work in place, torchvision's resnet and vgg
among them. So hooks are put on tensors, in the forward: on the output, and on an alias of each input,
whose gradient is this module's alone and not the sum over all that use the tensor. A hook that a
tensor had before it was written over stays with the old value
(https://docs.pytorch.org/docs/stable/notes/autograd.html, "Behavior of Tensor hooks when Tensor is
modified in-place"); that does not hold for views, so the alias is none to autograd.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hookcli.hooks.watching import map_tensors, named_tensors, watch
from hookcli.records import Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils.hooks import RemovableHandle

    from hookcli.hooks.observing import Observer
    from hookcli.records import LayerInfo

NO_PATH = "no path leads from it to the score"
NOT_NEEDED = "nothing before it needs a gradient"
SWITCHED_OFF = "the model ran it without gradients"
FROZEN = "requires_grad is False"
NO_NUMBERS = "integers have no gradient"


class _Alias(torch.autograd.Function):
    """The same memory and the same counter of writes, and no view: it has a gradient of its own."""

    @staticmethod
    def forward(_context: Any, tensor: Tensor) -> Tensor:  # type: ignore[override]
        return tensor.detach()

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


class _Rewritten(torch.autograd.Function):
    """A tensor whose memory was written over through its alias: from here on it is what the alias is."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, _alias: Tensor) -> Tensor:  # type: ignore[override]
        context.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        return None, gradient


@dataclass(frozen=True, slots=True)
class _Given:
    """An input, its alias, and how often they had been written over when the call began."""

    tensor: Tensor
    alias: Tensor
    version: int


@dataclass(frozen=True, slots=True)
class Absent:
    """A gradient that does not exist, of a tensor that does."""

    call: Call
    shape: tuple[int, ...]
    dtype: torch.dtype
    reason: str


@dataclass(slots=True)
class Gradients:
    """Follows forwards and the backwards through them.

    Attributes:
        observer: gets every gradient inside a hook; it must reduce or copy it.
        called: module paths of the layers that ran.
    """

    observer: Observer
    called: set[str] = field(default_factory=set)
    _absent: dict[str, Absent] = field(default_factory=dict)
    _handles: list[RemovableHandle] = field(default_factory=list)
    _first: dict[str, Call] = field(default_factory=dict)
    _running: dict[str, list[_Given]] = field(default_factory=dict)

    @property
    def absent(self) -> tuple[Absent, ...]:
        """The gradients that have not come so far, and why."""
        return tuple(self._absent.values())

    def started(self, call: Call, inputs: object) -> object:
        """Put an alias in the place of every input; the same one where a tensor is given twice."""
        self.called.add(call.layer.module_path)
        self._first.setdefault(call.layer.module_path, call)
        aliases: dict[int, Tensor] = {}
        given = self._running[call.id] = []

        def alias(key: str, tensor: Tensor) -> Tensor:
            if id(tensor) not in aliases:
                named = replace(call, side="grad_input", output_key=key)
                own = tensor
                if self._expects(named, tensor, NOT_NEEDED):
                    own = _Alias.apply(tensor)
                    given.append(_Given(tensor, own, tensor._version))
                    self._follow(named, own)
                aliases[id(tensor)] = own
            return aliases[id(tensor)]

        return map_tensors(inputs, alias)

    def finished(self, call: Call, output: object) -> None:
        """Follow every output; an input that was written over is known as such."""
        for given in self._running.pop(call.id):
            if given.alias._version != given.version:
                with torch.autograd._unsafe_preserve_version_counter(given.tensor):  # nothing is written
                    _Rewritten.apply(given.tensor, given.alias)
        for key, tensor in named_tensors(output):
            named = replace(call, side="grad_output", output_key=key)
            if self._expects(named, tensor, NOT_NEEDED):
                self._follow(named, tensor)

    def parameter(self, layer: LayerInfo, name: str, parameter: Tensor) -> None:
        """Follow a parameter of a layer."""
        call = Call(layer, side="param", output_key=name)
        if self._expects(call, parameter, FROZEN):
            self._follow(call, parameter)

    def close(self) -> None:
        """Take the hooks off; what is left of a graph gives nothing any more."""
        for handle in self._handles:
            handle.remove()

    def _expects(self, call: Call, tensor: Tensor, otherwise: str) -> bool:
        """Whether the tensor can get a gradient; the reason is noted either way, until one comes."""
        reason = NO_PATH
        if not (tensor.is_floating_point() or tensor.is_complex()):
            reason = NO_NUMBERS
        elif not tensor.requires_grad:
            off = call.side != "param" and not torch.is_grad_enabled()
            reason = SWITCHED_OFF if off else otherwise
        self._absent[call.id] = Absent(call, tuple(tensor.shape), tensor.dtype, reason)
        return reason == NO_PATH

    def _follow(self, call: Call, tensor: Tensor) -> None:
        hook = tensor.register_hook(partial(self._come, call))  # type: ignore[no-untyped-call]
        self._handles.append(hook)

    def _come(self, call: Call, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        self._absent.pop(call.id, None)
        if call.side == "param":
            first = self._first.get(call.layer.module_path)
            call = replace(call, order=first.order if first else 0)
        self.observer(call, gradient)


@contextmanager
def observe_gradients(
    model: nn.Module, layers: Sequence[LayerInfo], observer: Observer
) -> Iterator[Gradients]:
    """Call ``observer(call, gradient)`` for every gradient of ``layers``, while the block lasts.

    ``call.side`` is ``grad_output`` or ``grad_input`` (d(score)/d(output) and d(score)/d(input) of this
    call alone), or ``param``, with the parameter's name as the output key. The forward and the
    backward both belong into the block. The parameters of a layer are its own; a
    ``MultiheadAttention`` has those of its parts too, which it uses without calling them.

    Args:
        model: not compiled, not scripted.
        layers: modules of this model.
        observer: runs inside the hook and must reduce or copy the gradient before it returns.
    """
    gradients = Gradients(observer)
    modules = dict(model.named_modules())
    try:
        for layer in layers:
            own = modules[layer.module_path].named_parameters(recurse=layer.is_leaf)
            for name, parameter in own:
                gradients.parameter(layer, name, parameter)
        with watch(model, layers, gradients.started, gradients.finished):
            yield gradients
    finally:
        gradients.close()
