"""Register hooks that also run on ``module.forward(x)``; check that modules have kept the hooks.

torch runs hooks only if code calls the module itself. While a module has hooks of hookcli, hookcli
changes the module's class, so that the hooks also run when code calls ``module.forward(x)``. Copies
made by ``copy.deepcopy`` or ``pickle`` have none of these hooks.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from hookcli.errors import ForwardError
from hookcli.outside.foreign import Forgiveness, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

_BEFORE, _AFTER, _ALWAYS = "_forward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called"
_BY_HOOK = (_BEFORE, _AFTER, _ALWAYS, "_forward_pre_hooks_with_kwargs")
_CALL = nn.Module._call_impl.__code__  # this and the functions in it call ``forward`` after hooks
_CALLERS = {id(each) for each in (_CALL, nn.Module._slow_forward.__code__, *_CALL.co_consts)}
_HOOKS: Counter[type] = Counter()  # the number of hooks on the modules of each class
_CHANGES: dict[type, list[tuple[str, object, object]]] = {}  # a name, its new and its old value
_RUNNING: set[tuple[int, int]] = set()  # the thread and the module of each call


class Hook(functools.partial[Any]):
    """A hook that hookcli registered; its type distinguishes it from the user's hooks."""


def begin(module: nn.Module) -> type:
    kind = type(module)
    _HOOKS[kind] += 1
    if _HOOKS[kind] == 1:
        _CHANGES[kind] = []
        for name, change in (("forward", _change_forward), ("__getstate__", _change_state)):
            before = inspect.getattr_static(kind, name, None)
            is_plain = hasattr(before, "__get__") and not isinstance(module, torch.jit.ScriptModule)
            if is_plain and before is not nn.Module.forward:
                new, old = change(before, kind), vars(kind).get(name)
                with Forgiveness():  # the user's metaclass may refuse
                    setattr(kind, name, new)
                    _CHANGES[kind].append((name, new, old))
    return kind


def end(kind: type) -> None:
    _HOOKS[kind] -= 1
    if not _HOOKS[kind]:
        del _HOOKS[kind]
        for name, new, old in _CHANGES.pop(kind):
            if vars(kind).get(name) is new:  # the model may have changed the class, too
                delattr(kind, name) if old is None else setattr(kind, name, old)


def _change_forward(before: Any, kind: type) -> Callable[..., object]:
    # A call inside a call of the same module, such as ``super().forward(x)``, is a part of it.

    @functools.wraps(before)
    def forward(module: nn.Module, /, *args: object, **kwargs: object) -> object:
        function = before.__get__(module, type(module))
        running = threading.get_ident(), id(module)
        if type(module) is not kind or "forward" in vars(module) or running in _RUNNING:
            return function(*args, **kwargs)
        _RUNNING.add(running)
        try:
            has_run_hooks = id(sys._getframe(1).f_code) in _CALLERS  # hashing code is slow
            # inside torch.vmap and the like, a tensor has no values to observe
            if has_run_hooks or torch._C._functorch.peek_interpreter_stack() is not None:
                return function(*args, **kwargs)
            return _call_with_hooks(module, function, args, kwargs)
        finally:
            _RUNNING.discard(running)

    return forward


def _call_with_hooks(module: nn.Module, function: Callable[..., object], *given: Any) -> object:
    args, kwargs = given
    hooks = ([*vars(module)[name].items()] for name in (_BEFORE, _AFTER))
    before, after = ([each for each in some if isinstance(each[1], Hook)] for some in hooks)
    try:
        for _, hook in before:
            args, kwargs = hook(module, args, kwargs) or (args, kwargs)
        output = function(*args, **kwargs)
        while after:
            changed = after.pop(0)[1](module, args, output)
            output = output if changed is None else changed
        return output
    finally:
        for number, hook in after:  # some are left only if something raised
            if number in vars(module)[_ALWAYS]:
                hook(module, args, None)


def _change_state(before: Any, _kind: type) -> Callable[..., object]:
    @functools.wraps(before)
    def get_state(module: nn.Module) -> object:
        state = before.__get__(module, type(module))()
        known = state if isinstance(state, dict) else {}
        own = {name: known[name] for name in _BY_HOOK if name in known}
        ours = {key for hooks in own.values() for key in hooks if isinstance(hooks[key], Hook)}
        for name, hooks in own.items():
            state = {**state, name: OrderedDict((k, hooks[k]) for k in hooks if k not in ours)}
        return state

    return get_state


@dataclass(frozen=True, slots=True)
class _PlacedHook:
    label: str  # the module in error messages
    module: nn.Module
    dictionary: str  # the attribute in which torch keeps the hook
    handle: RemovableHandle
    kind: type  # the class of the module when it got the hook


@dataclass(slots=True)
class PlacedHooks:
    # ``nn.Module`` itself registers them, because a module may override its methods.
    _placed: list[_PlacedHook] = field(default_factory=list)

    def put_before(self, label: str, module: nn.Module, hook: Callable[..., object]) -> None:
        handle = nn.Module.register_forward_pre_hook(module, Hook(hook), with_kwargs=True)
        self._placed.append(_PlacedHook(label, module, "_forward_pre_hooks", handle, begin(module)))

    def put_after(
        self, label: str, module: nn.Module, hook: Callable[..., object], *, first: bool = False
    ) -> None:
        """Call ``hook(module, args, output)`` after each forward pass of ``module``.

        ``label`` names the module in error messages. A pass that raises also calls ``hook``, with
        None as the output. With ``first``, ``hook`` runs before other hooks.
        """
        own = Hook(hook)
        handle = nn.Module.register_forward_hook(module, own, always_call=True, prepend=first)
        self._placed.append(_PlacedHook(label, module, "_forward_hooks", handle, begin(module)))

    def check(self) -> None:
        for each in self._placed:
            hooks = ask(each.module, each.dictionary)
            if not isinstance(hooks, dict) or each.handle.id not in hooks:
                where = f"{each.label} ({type(each.module).__name__}) during its forward pass"
                what = f"the model removed the hooks from {where}, so its outputs were not observed"
                raise ForwardError(what, "let it remove only its own hooks, through their handles")

    def remove(self) -> None:
        for each in self._placed:
            each.handle.remove()
            end(each.kind)


def hook_gradient(
    tensor: Tensor, hook: Callable[[Tensor | None], Tensor | None]
) -> RemovableHandle:
    """Let torch call ``hook`` on a tensor's gradient; any result but None replaces the gradient."""
    handle: RemovableHandle = cast("Any", tensor).register_hook(hook)  # torch's method has no types
    return handle


def hook_accumulated(parameter: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    handle: RemovableHandle = cast("Any", parameter).register_post_accumulate_grad_hook(hook)
    return handle
