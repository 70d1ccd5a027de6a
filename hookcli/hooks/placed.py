"""Registering hooks on tensors and modules, and checking that modules have kept their hooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from hookcli.errors import ForwardError
from hookcli.hooks.watched_classes import Hook, begin, end
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True, slots=True)
class _PlacedHook:
    label: str  # the module in error messages
    module: nn.Module
    dictionary: str  # the attribute in which torch keeps the hook
    handle: RemovableHandle
    kind: type  # the class of the module when it got the hook


@dataclass(slots=True)
class PlacedHooks:
    """The hooks that one caller has put on modules, whose ``label`` is for error messages."""

    # The methods of ``nn.Module`` itself register them, because a module may override these
    # methods.

    _placed: list[_PlacedHook] = field(default_factory=list)

    def put_before(self, label: str, module: nn.Module, hook: Callable[..., object]) -> None:
        """Call ``hook(module, args, kwargs)`` before each forward pass of ``module``."""
        handle = nn.Module.register_forward_pre_hook(module, Hook(hook), with_kwargs=True)
        self._placed.append(_PlacedHook(label, module, "_forward_pre_hooks", handle, begin(module)))

    def put_after(
        self,
        label: str,
        module: nn.Module,
        hook: Callable[..., object],
        *,
        always: bool = False,
        first: bool = False,
    ) -> None:
        """Call ``hook(module, args, output)`` after each forward pass of ``module``."""
        # With ``always``, also if it raised, with None as the output; ``first``: before others
        own = Hook(hook)
        handle = nn.Module.register_forward_hook(module, own, always_call=always, prepend=first)
        self._placed.append(_PlacedHook(label, module, "_forward_hooks", handle, begin(module)))

    def check(self) -> None:
        """Raise an error if any hook is no longer in place."""
        for each in self._placed:
            hooks = ask(each.module, each.dictionary)
            if not isinstance(hooks, dict) or each.handle.id not in hooks:
                raise ForwardError(
                    f"the model removed the hooks from {each.label} ({type(each.module).__name__}) "
                    "during its forward pass, so its outputs were not observed",
                    "let it remove only its own hooks, through their handles",
                )

    def remove(self) -> None:
        """Remove all hooks."""
        for each in self._placed:
            each.handle.remove()
            end(each.kind)


def hook_gradient(
    tensor: Tensor, hook: Callable[[Tensor | None], Tensor | None]
) -> RemovableHandle:
    """Call ``hook(gradient)``, with None if none came; what it returns replaces the gradient."""
    handle: RemovableHandle = cast("Any", tensor).register_hook(hook)  # torch's method has no types
    return handle


def hook_accumulated(parameter: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(parameter)`` whenever autograd has added a gradient to ``parameter.grad``."""
    handle: RemovableHandle = cast("Any", parameter).register_post_accumulate_grad_hook(hook)
    return handle
