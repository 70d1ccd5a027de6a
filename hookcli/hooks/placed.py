"""Registering hooks: on modules, with a check that they are still in place, and on tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from hookcli.errors import ForwardError
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True, slots=True)
class _PlacedHook:
    """A hook on a module, and the module's dictionary in which torch keeps it."""

    label: str
    module: nn.Module
    dictionary: str
    handle: RemovableHandle


@dataclass(slots=True)
class PlacedHooks:
    """All hooks that one caller has put on the modules of a model.

    The class calls torch's own methods as functions of ``nn.Module``, because a module may override
    them.
    """

    _placed: list[_PlacedHook] = field(default_factory=list)

    def put_before(self, label: str, module: nn.Module, hook: Callable[..., object]) -> None:
        """Put ``hook(module, args, kwargs)`` before the forward of a module."""
        handle = nn.Module.register_forward_pre_hook(module, hook, with_kwargs=True)
        self._placed.append(_PlacedHook(label, module, "_forward_pre_hooks", handle))

    def put_after(
        self,
        label: str,
        module: nn.Module,
        hook: Callable[..., object],
        *,
        always: bool = False,
        first: bool = False,
    ) -> None:
        """Put ``hook(module, args, output)`` after the forward of a module.

        With ``always``, the hook also runs if the forward raised, with None as the output. With
        ``first``, it runs before the hooks that were put there earlier.
        """
        handle = nn.Module.register_forward_hook(module, hook, always_call=always, prepend=first)
        self._placed.append(_PlacedHook(label, module, "_forward_hooks", handle))

    def check(self) -> None:
        """Check that every hook is still in place; without its hook, a module is not observed.

        Raises:
            ForwardError: a hook has been removed.
        """
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


def hook_gradient(
    tensor: Tensor, hook: Callable[[Tensor | None], Tensor | None]
) -> RemovableHandle:
    """Call ``hook(gradient)`` once the gradient of ``tensor`` is computed.

    A return value other than None replaces the gradient.
    """
    handle: RemovableHandle = cast("Any", tensor).register_hook(hook)  # torch's has no types
    return handle


def hook_accumulated(parameter: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call ``hook(parameter)`` after a gradient was added to ``parameter.grad``."""
    handle: RemovableHandle = cast("Any", parameter).register_post_accumulate_grad_hook(hook)
    return handle
