"""Hooks on tensors, with the types that torch leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle


class _Hookable(Protocol):
    """A tensor, as far as hooks go."""

    def register_hook(
        self, hook: Callable[[Tensor | None], Tensor | None], /
    ) -> RemovableHandle: ...

    def register_post_accumulate_grad_hook(
        self, hook: Callable[[Tensor], None], /
    ) -> RemovableHandle: ...


def hook_gradient(
    tensor: _Hookable, hook: Callable[[Tensor | None], Tensor | None]
) -> RemovableHandle:
    """Call ``hook(gradient)`` when the gradient of ``tensor`` is there; what it returns, unless None, replaces it."""
    return tensor.register_hook(hook)


def hook_accumulated(parameter: _Hookable, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(parameter)`` after a gradient was added to ``parameter.grad``."""
    return parameter.register_post_accumulate_grad_hook(hook)
