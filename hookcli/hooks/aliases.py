"""Aliases of tensors: an alias shares a tensor's memory, but has a gradient of its own.

Each module gets its own alias of an input. The gradient of the alias belongs to this module alone,
whereas the gradient of the input is the sum over all modules that use the input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from hookcli.hooks.nested import map_tensors, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.records.calls import Call


class _Alias(torch.autograd.Function):
    """Make an alias of a tensor that shares its write counter, and is no view for autograd."""

    @staticmethod
    def forward(_context: object, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(_context: object, gradient: Tensor) -> Tensor:
        return gradient


class _Rewrite(torch.autograd.Function):
    """Give a tensor the place that the tensor's alias has in autograd's graph."""

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
    """The aliases that replace the inputs of running calls."""

    _running: dict[str, list[_AliasedInput]] = field(default_factory=dict)

    def give(
        self,
        call: Call,
        inputs: object,
        needs_one: Callable[[str, Tensor], bool],
        follow: Callable[[str, Tensor], None],
    ) -> object:
        """Return ``inputs`` with one alias for each tensor that needs one, until ``end``."""
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
        """Return ``output`` with the inputs in place of their aliases."""
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
