"""Replace tensors and gradients inside a running model with the results of a given function.

A tensor's gradient is a sum over all modules that use the tensor. To separate their shares, hookcli
gives each module an alias of its input: a tensor with the same memory, but with its own gradient.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from hookcli.errors import RequestError
from hookcli.hooks.nested import map_tensors, tensors_in
from hookcli.hooks.register import hook_gradient
from hookcli.hooks.watch import ignore, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.utils.hooks import RemovableHandle

    from hookcli.records.calls import Call, LayerInfo


class _Alias(torch.autograd.Function):
    """Makes an alias of a tensor: the same memory and version counter, but no view to autograd."""

    @staticmethod
    def forward(_context: object, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(_context: object, gradient: Tensor) -> Tensor:
        return gradient


class _Rewrite(torch.autograd.Function):
    """Makes autograd pass a tensor's gradient on to the tensor's alias."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, _alias: Tensor) -> Tensor:
        context.is_view = tensor._is_view()
        context.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        # for a view, None would drop the gradient of its whole base tensor
        return torch.zeros_like(gradient) if context.is_view else None, gradient


@dataclass(frozen=True, slots=True)
class _AliasedInput:
    tensor: Tensor
    alias: Tensor
    version: int  # of their shared write counter, when the call began


@dataclass(slots=True)
class Aliases:
    _running: dict[str, list[_AliasedInput]] = field(default_factory=dict)

    def give(
        self,
        call: Call,
        inputs: object,
        needs_one: Callable[[str, Tensor], bool],
        follow: Callable[[str, Tensor], None],
    ) -> object:
        """Return ``inputs`` with an alias for each tensor for which ``needs_one`` returns True.

        hookcli calls ``follow(key, alias)`` for each new alias. ``end`` puts the originals back.
        """
        aliases: dict[int, Tensor] = {}
        given = self._running[call.id] = []

        def alias(key: str, tensor: Tensor) -> Tensor:
            if id(tensor) not in aliases:
                own = tensor
                if needs_one(key, tensor):
                    own = _Alias.apply(tensor)
                    given.append(_AliasedInput(tensor, own, tensor._version))
                    follow(key, own)
                aliases[id(tensor)] = own
            return aliases[id(tensor)]

        return map_tensors(inputs, alias)

    def end(self, call: Call, output: object) -> object:
        """Return ``output`` with the original inputs in place of the aliases that ``give`` made."""
        # If the call wrote to an alias or returned it, the input also takes the alias's place in
        # autograd's graph, so that autograd knows about this write and later ones. Only the alias
        # of a leaf or of a view that the call returned unwritten stays in ``output``.
        tensors = {}
        for given in self._running.pop(call.id):
            comes_out = any(tensor is given.alias for tensor in tensors_in(output))
            own = not (given.tensor.is_leaf or given.tensor._is_view())
            if given.alias._version != given.version or (comes_out and own):
                with _unsafe_preserve_version_counter(given.tensor):  # the write is counted already
                    _Rewrite.apply(given.tensor, given.alias)
                tensors[id(given.alias)] = given.tensor
        return map_tensors(output, lambda _, tensor: tensors.get(id(tensor), tensor))


@dataclass(frozen=True, slots=True)
class Change:
    side: str  # ``output``, ``input``, ``grad_output``, ``grad_input`` or ``param``
    layers: tuple[LayerInfo, ...]  # empty for ``param``
    parameters: tuple[str, ...]  # full names, for ``param``
    # gets a call (None for a parameter) and a floating-point tensor, which it must not overwrite
    apply: Callable[[Call | None, Tensor], Tensor]
    takes_quantized: bool = False  # whether ``apply`` gets quantized tensors, too


@contextmanager
def change(model: nn.Module, changes: Sequence[Change]) -> Iterator[None]:
    # An observer inside sees the changed tensors. ``change_input_gradients`` is for ``grad_input``.
    with ExitStack() as stack:
        for each in changes:
            if each.side == "param":
                wanted = [model.get_parameter(name) for name in each.parameters]
                able = [parameter for parameter in wanted if parameter.requires_grad]
                if not able:
                    what = f"{each.parameters[0]} has no gradient that could be changed"
                    raise RequestError(what, "requires_grad is False")
                for parameter in able:
                    stack.enter_context(_hook(parameter, partial(each.apply, None)))
            elif each.side == "input":
                start = partial(_change_value, each, stack)
                stack.enter_context(watch(model, each.layers, start, ignore))
            elif each.side in ("output", "grad_output"):
                end = partial(_change_value, each, stack)
                stack.enter_context(watch(model, each.layers, None, end))
        yield


@contextmanager
def change_input_gradients(model: nn.Module, changes: Sequence[Change]) -> Iterator[None]:
    # Enter this block after the observers of gradients, so that they see the changed gradients: the
    # gradient of an input reaches the latest of its aliases first.
    with ExitStack() as stack:
        for each in reversed([c for c in changes if c.side == "grad_input"]):
            aliases = Aliases()
            start = partial(_give_aliases, each, stack, aliases)
            stack.enter_context(watch(model, each.layers, start, aliases.end, ends_first=True))
        yield


def _give_aliases(
    each: Change, hooks: ExitStack, aliases: Aliases, call: Call, inputs: object
) -> object:
    def follow(key: str, alias: Tensor) -> None:
        own_call = replace(call, side=each.side, output_key=key)
        hooks.enter_context(_hook(alias, partial(each.apply, own_call)))

    return aliases.give(call, inputs, _needs_gradient, follow)


def _change_value(each: Change, hooks: ExitStack, call: Call, value: object) -> object:
    def apply(key: str, tensor: Tensor) -> Tensor:
        own_call = replace(call, side=each.side, output_key=key)
        if not (tensor.is_floating_point() or (each.takes_quantized and tensor.is_quantized)):
            return tensor
        if each.side != "grad_output":
            return each.apply(own_call, tensor)
        if _needs_gradient(key, tensor):
            hooks.enter_context(_hook(tensor, partial(each.apply, own_call)))
        return tensor

    return map_tensors(value, apply)


def _hook(tensor: Tensor, apply: Callable[[Tensor], Tensor]) -> RemovableHandle:
    def changed(gradient: Tensor | None) -> Tensor | None:
        with torch.no_grad():
            return None if gradient is None else apply(gradient)

    return hook_gradient(tensor, changed)


def _needs_gradient(_key: str, tensor: Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad and tensor.is_floating_point()
