"""An alias of a tensor for one module alone: the same memory, a gradient of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from hookcli.hooks.nested import map_tensors, named_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.records.calls import Call


class _Context(Protocol):
    """What torch hands to both halves of a function, with what ``_Rewritten`` keeps there."""

    is_view: bool

    def mark_dirty(self, *tensors: Tensor) -> None: ...


class _Alias(torch.autograd.Function):
    """The same memory and the same counter of writes, and to autograd no view."""

    @staticmethod
    def forward(_context: object, tensor: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(_context: object, gradient: Tensor) -> Tensor:
        return gradient


class _Rewritten(torch.autograd.Function):
    """A tensor whose memory was written over through its alias: from here on it is what the alias is."""

    @staticmethod
    def forward(context: _Context, tensor: Tensor, _alias: Tensor) -> Tensor:
        context.is_view = tensor._is_view()
        context.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(context: _Context, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        # of a view nothing would drop the gradient of all that it is a view of
        return torch.zeros_like(gradient) if context.is_view else None, gradient


@dataclass(frozen=True, slots=True)
class _Given:
    """An input, its alias, and how often they had been written over when the call began."""

    tensor: Tensor
    alias: Tensor
    version: int


@dataclass(slots=True)
class Aliases:
    """The aliases that running calls were given in the place of their inputs."""

    _running: dict[str, list[_Given]] = field(default_factory=dict)

    def give(
        self,
        call: Call,
        inputs: object,
        needs_one: Callable[[str, Tensor], bool],
        follow: Callable[[str, Tensor], None],
    ) -> object:
        """``inputs`` with an alias for each tensor that needs one; the same where a tensor is given twice.

        Args:
            call: the call that begins.
            inputs: what it is given.
            needs_one: asked of each tensor once, with its key.
            follow: gets each alias, with the key of its tensor.
        """
        aliases: dict[int, Tensor] = {}
        given = self._running[call.id] = []

        def alias(key: str, tensor: Tensor) -> Tensor:
            if id(tensor) not in aliases:
                own = tensor
                if needs_one(key, tensor):
                    own = _Alias.apply(tensor)
                    given.append(_Given(tensor, own, tensor._version))
                    follow(key, own)
                aliases[id(tensor)] = own
            return aliases[id(tensor)]

        return map_tensors(inputs, alias)

    def end(self, call: Call, output: object) -> object:
        """``output`` with the tensors themselves in the place of their aliases.

        An input that was written over while the call ran is known as such from here on. One that
        comes out again is the alias from here on, under both its names: what is written over under
        one of them later must be known under the other. Its gradient is then that of all later uses.
        """
        tensors = {}
        for given in self._running.pop(call.id):
            comes_out = any(tensor is given.alias for _, tensor in named_tensors(output))
            own = not (given.tensor.is_leaf or given.tensor._is_view())
            if given.alias._version != given.version or (comes_out and own):
                with _unsafe_preserve_version_counter(given.tensor):  # the writing was counted
                    _Rewritten.apply(given.tensor, given.alias)
                tensors[id(given.alias)] = given.tensor
        return map_tensors(output, lambda _, tensor: tensors.get(id(tensor), tensor))
