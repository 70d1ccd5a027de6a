"""Observe gradients of modules' inputs, outputs and parameters; say why a gradient is missing."""
# ``register_full_backward_hook`` raises on models that work in place, such as torchvision's resnet
# and vgg. So hooks are put on tensors during the forward pass: on the output, and on an alias of
# each input, whose gradient belongs to one module alone. When code overwrites a tensor, an earlier
# hook still receives the gradient of the old value
# (https://docs.pytorch.org/docs/stable/notes/autograd.html, "Behavior of Tensor hooks when Tensor
# is modified in-place"), except with views, so autograd must not treat the alias as a view.

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hookcli.errors import NestedTensorError
from hookcli.hooks.change import Aliases
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.register import hook_accumulated, hook_gradient
from hookcli.hooks.watch import watch
from hookcli.networks.modules import find_modules
from hookcli.records.calls import RECOMPUTED, Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils.hooks import RemovableHandle

    from hookcli.hooks.observe import Observer
    from hookcli.records.calls import LayerInfo

PRUNED = "_orig"  # the suffix that torch.nn.utils.prune adds to the name of a parameter
NO_PATH = "no path leads from it to the score"
VIEW = f"{NO_PATH}, or it is a view that was overwritten"
NOT_NEEDED = "no tensor before it requires a gradient"
SWITCHED_OFF = "the model ran it with gradients disabled"
FROZEN = "requires_grad is False"
NO_NUMBERS = "integers have no gradient"


@dataclass(frozen=True, slots=True)
class MissingGradient:
    call: Call
    shape: tuple[int, ...]
    dtype: torch.dtype
    reason: str


@dataclass(slots=True)
class Gradients:
    observer: Observer
    called: set[str] = field(default_factory=set)  # module paths of layers that ran
    handles: list[RemovableHandle] = field(default_factory=list)
    _missing: dict[str, MissingGradient] = field(default_factory=dict)
    _first: dict[str, int] = field(default_factory=dict)
    _aliases: Aliases = field(default_factory=Aliases)
    _parameters: set[int] = field(default_factory=set)

    @property
    def missing(self) -> tuple[MissingGradient, ...]:
        missing = self._missing.values()
        return tuple(replace(each, call=self._with_order(each.call)) for each in missing)

    def started(self, call: Call, inputs: object) -> object:
        self.called.add(call.layer.module_path)
        self._first.setdefault(call.layer.module_path, call.order)
        if call.layer.is_operation:
            return None  # no alias, because a listener cannot replace an operation's inputs

        def needs_one(key: str, tensor: Tensor) -> bool:
            return self._expects(replace(call, side="grad_input", output_key=key), tensor)

        def follow(key: str, alias: Tensor) -> None:
            self._follow(replace(call, side="grad_input", output_key=key), alias)

        return self._aliases.give(call, inputs, needs_one, follow)

    def finished(self, call: Call, output: object) -> object:
        if not call.layer.is_operation:
            output = self._aliases.end(call, output)
        for key, tensor in named_tensors(output):
            named = replace(call, side="grad_output", output_key=key)
            if self._expects(named, tensor):
                self._follow(named, tensor)
        return output

    def parameter(self, layer: LayerInfo, name: str, parameter: Tensor) -> None:
        if id(parameter) in self._parameters:
            return
        self._parameters.add(id(parameter))
        call = Call(layer, side="param", output_key=name)
        if self._expects(call, parameter):
            self._follow(call, parameter)

    def _expects(self, call: Call, tensor: Tensor) -> bool:
        """Return whether a tensor can get a gradient; record the reason why it has none so far."""
        if tensor.is_nested:
            raise NestedTensorError
        reason = NO_PATH
        if not (tensor.is_floating_point() or tensor.is_complex()):
            reason = NO_NUMBERS
        elif call.side != "param" and not torch.is_grad_enabled():
            reason = SWITCHED_OFF
        elif not tensor.requires_grad:
            reason = FROZEN if call.side == "param" else NOT_NEEDED
        expected = reason == NO_PATH
        if expected and call.side != "param":
            if torch._C._current_graph_task_id() != -1:  # activation checkpointing
                reason = RECOMPUTED
            elif tensor._is_view() and call.side == "grad_output":
                reason = VIEW
        self._missing[call.id] = MissingGradient(call, tuple(tensor.shape), tensor.dtype, reason)
        return expected

    def _follow(self, call: Call, tensor: Tensor) -> None:
        # Reading grad_fn makes a new node in the graph for a view that was overwritten. torch 2.14
        # crashes if register_hook makes this node, because it has then already stored its hooks.
        _ = tensor.grad_fn
        self.handles.append(hook_gradient(tensor, partial(self._receive, call)))

    def _receive(self, call: Call, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._missing.pop(call.id, None)
            self.observer(self._with_order(call), gradient)

    def _with_order(self, call: Call) -> Call:
        if call.side != "param":
            return call
        return replace(call, order=self._first.get(call.layer.module_path, 0))


@contextmanager
def observe_gradients(
    model: nn.Module, layers: Sequence[LayerInfo], observer: Observer
) -> Iterator[Gradients]:
    # ``call.side`` is ``grad_output``, ``grad_input`` (both of this call alone), or ``param``, with
    # the parameter's name as ``call.output_key``. A layer's parameters do not include those of its
    # children, except in a ``MultiheadAttention``, which uses them without calling the children.
    gradients = Gradients(observer)
    modules = find_modules(model)
    try:
        for layer in (each for each in layers if not each.is_operation):
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
    """Make float and complex parameters require gradients inside the block.

    hookcli discards these gradients. At the end, it restores ``requires_grad`` and ``grad``.
    """
    parameters = [p for p in model.parameters() if p.is_floating_point() or p.is_complex()]
    known = [(each, each.requires_grad, each.grad) for each in parameters]
    handles = []
    try:
        for parameter in parameters:
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
