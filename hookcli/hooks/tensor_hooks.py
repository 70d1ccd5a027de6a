"""Registering hooks on tensors, with the types that torch's own functions lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle


class _Hookable(Protocol):
    """The methods of a tensor that register hooks, with their types."""

    def register_hook(
        self, hook: Callable[[Tensor | None], Tensor | None], /
    ) -> RemovableHandle: ...

    def register_post_accumulate_grad_hook(
        self, hook: Callable[[Tensor], None], /
    ) -> RemovableHandle: ...


def hook_gradient(
    tensor: _Hookable, hook: Callable[[Tensor | None], Tensor | None]
) -> RemovableHandle:
    """Call ``hook(gradient)`` once the gradient of ``tensor`` is computed.

    What ``hook`` returns, unless it is None, replaces the gradient.
    """
    return tensor.register_hook(hook)


def hook_accumulated(parameter: _Hookable, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(parameter)`` after a gradient was added to ``parameter.grad``."""
    return parameter.register_post_accumulate_grad_hook(hook)
