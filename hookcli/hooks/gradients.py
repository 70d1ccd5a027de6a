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
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.errors import NestedTensorError
from hookcli.hooks.aliases import Aliases
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.tensor_hooks import hook_accumulated, hook_gradient
from hookcli.hooks.watch import watch
from hookcli.records.calls import RECOMPUTED, Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils.hooks import RemovableHandle

    from hookcli.hooks.observe import Observer
    from hookcli.records.calls import LayerInfo

PRUNED = "_orig"  # what torch.nn.utils.prune puts behind the name of a parameter
NO_PATH = "no path leads from it to the score"
VIEW = f"{NO_PATH}, or it is a view that is written over"
NOT_NEEDED = "nothing before it needs a gradient"
SWITCHED_OFF = "the model ran it without gradients"
FROZEN = "requires_grad is False"
NO_NUMBERS = "integers have no gradient"


@dataclass(frozen=True, slots=True)
class MissingGradient:
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
        handles: of the hooks on tensors; without them what is left of a graph gives nothing any more.
    """

    observer: Observer
    called: set[str] = field(default_factory=set)
    handles: list[RemovableHandle] = field(default_factory=list)
    _absent: dict[str, MissingGradient] = field(default_factory=dict)
    _first: dict[str, int] = field(default_factory=dict)
    _aliases: Aliases = field(default_factory=Aliases)
    _parameters: set[int] = field(default_factory=set)

    @property
    def absent(self) -> tuple[MissingGradient, ...]:
        """The gradients that have not come so far, and why."""
        return tuple(
            replace(absent, call=self._placed(absent.call)) for absent in self._absent.values()
        )

    def started(self, call: Call, inputs: object) -> object:
        """Put an alias in the place of every input."""
        self.called.add(call.layer.module_path)
        self._first.setdefault(call.layer.module_path, call.order)

        def needs_one(key: str, tensor: Tensor) -> bool:
            named = replace(call, side="grad_input", output_key=key)
            return self._expects(named, tensor, NOT_NEEDED)

        def follow(key: str, alias: Tensor) -> None:
            self._follow(replace(call, side="grad_input", output_key=key), alias)

        return self._aliases.give(call, inputs, needs_one, follow)

    def finished(self, call: Call, output: object) -> object:
        """Follow every output."""
        output = self._aliases.end(call, output)
        for key, tensor in named_tensors(output):
            named = replace(call, side="grad_output", output_key=key)
            if self._expects(named, tensor, NOT_NEEDED):
                self._follow(named, tensor)
        return output

    def parameter(self, layer: LayerInfo, name: str, parameter: Tensor) -> None:
        """Follow a parameter of a layer, once."""
        if id(parameter) in self._parameters:
            return
        self._parameters.add(id(parameter))
        call = Call(layer, side="param", output_key=name)
        if self._expects(call, parameter, FROZEN):
            self._follow(call, parameter)

    def _expects(self, call: Call, tensor: Tensor, otherwise: str) -> bool:
        """Whether the tensor can get a gradient; until one comes, a reason is noted either way."""
        if tensor.is_nested:
            raise NestedTensorError
        reason = NO_PATH
        if not (tensor.is_floating_point() or tensor.is_complex()):
            reason = NO_NUMBERS
        elif call.side != "param" and not torch.is_grad_enabled():
            reason = SWITCHED_OFF
        elif not tensor.requires_grad:
            reason = otherwise
        expected = reason == NO_PATH
        if expected and call.side != "param":
            if torch._C._current_graph_task_id() != -1:  # activation checkpointing
                reason = RECOMPUTED
            elif tensor._is_view() and call.side == "grad_output":
                reason = VIEW
        self._absent[call.id] = MissingGradient(call, tuple(tensor.shape), tensor.dtype, reason)
        return expected

    def _follow(self, call: Call, tensor: Tensor) -> None:
        # A view that was written over gets a new node when it is asked for it. torch 2.14 crashes where
        # that happens inside register_hook, which has put the hooks in place already.
        _ = tensor.grad_fn
        self.handles.append(hook_gradient(tensor, partial(self._come, call)))

    def _come(self, call: Call, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._absent.pop(call.id, None)
            self.observer(self._placed(call), gradient)

    def _placed(self, call: Call) -> Call:
        """A parameter stands where its layer was called first."""
        if call.side != "param":
            return call
        return replace(call, order=self._first.get(call.layer.module_path, 0))


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
                gradients.parameter(layer, name.removesuffix(PRUNED), parameter)
        with watch(model, layers, gradients.started, gradients.finished):
            yield gradients
    finally:
        for handle in gradients.handles:
            handle.remove()


@contextmanager
def need_gradients(model: nn.Module) -> Iterator[None]:
    """While the block lasts every parameter needs a gradient, and none is kept in ``.grad``.

    Afterwards ``requires_grad`` and ``.grad`` are what they were.
    """
    known = [
        (parameter, parameter.requires_grad, parameter.grad)
        for parameter in model.parameters()
        if parameter.is_floating_point() or parameter.is_complex()
    ]
    handles = []
    try:
        for parameter, _, _ in known:
            parameter.requires_grad_(True)
            parameter.grad = None
            handles.append(hook_accumulated(parameter, _forget))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter, needed, gradient in known:
            parameter.requires_grad_(needed)
            parameter.grad = gradient


def _forget(parameter: Tensor) -> None:
    parameter.grad = None
