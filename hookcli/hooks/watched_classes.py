"""The classes of modules with hooks of hookcli, changed for as long as the modules have the hooks.

torch runs hooks only if the module itself is called; with the changed class, the hooks of hookcli
also run when code calls ``module.forward(x)``. Copies made by ``copy.deepcopy`` or ``pickle`` have
none of these hooks. hookcli changes no attribute of a module, which would be copied with it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections import Counter, OrderedDict
from contextlib import nullcontext
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hookcli.outside.foreign import Forgiveness

if TYPE_CHECKING:
    from collections.abc import Callable

_BEFORE, _AFTER = "_forward_pre_hooks", "_forward_hooks"
_BY_HOOK = (_BEFORE, _AFTER, "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
_CALL = nn.Module._call_impl.__code__
# The code of torch that calls ``forward`` and runs the hooks itself.
_CALLERS = {_CALL, nn.Module._slow_forward.__code__} | {
    each for each in _CALL.co_consts if isinstance(each, CodeType)
}
_HOOKS: Counter[type] = Counter()  # the number of hooks on the modules of each class
_CHANGES: dict[type, dict[str, tuple[object, object]]] = {}  # by name, the new and the old value
_RUNNING: set[tuple[int, int]] = set()  # the thread and the module of each call


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """A hook of hookcli on a module; a copy of it does nothing, and needs no hookcli.

    Attributes:
        function: called with what torch passes to a hook of this kind.
        always: whether a hook after the forward pass also runs if the forward pass raised.
    """

    function: Callable[..., Any]
    always: bool = False

    def __call__(self, *arguments: object) -> Any:
        """Call the function."""
        return self.function(*arguments)

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to make a copy: a method of Python that takes anything and returns None."""
        return getattr, (nullcontext(), "__exit__")


def begin(module: nn.Module) -> type:
    """Change the class of a module that gets a hook, and return it for a later call of ``end``."""
    kind = type(module)
    _HOOKS[kind] += 1
    if _HOOKS[kind] == 1:
        _CHANGES[kind] = {}
        for name, change in (("forward", _change_forward), ("__getstate__", _change_state)):
            before = inspect.getattr_static(kind, name, None)
            is_unusual = isinstance(module, torch.jit.ScriptModule) or not hasattr(
                before, "__get__"
            )
            if is_unusual or before is nn.Module.forward:
                continue
            with Forgiveness():  # the user's metaclass may refuse
                _CHANGES[kind][name] = change(kind, before), vars(kind).get(name)
                setattr(kind, name, _CHANGES[kind][name][0])
    return kind


def end(kind: type) -> None:
    """Undo one ``begin``, for a hook that goes."""
    _HOOKS[kind] -= 1
    if not _HOOKS[kind]:
        del _HOOKS[kind]
        for name, (new, old) in _CHANGES.pop(kind).items():
            with Forgiveness():
                if vars(kind).get(name) is new:  # the model may have changed the class, too
                    delattr(kind, name) if old is None else setattr(kind, name, old)


def _change_forward(kind: type, before: Any) -> Callable[..., object]:
    """Return a ``forward`` that runs the hooks of hookcli if it is called directly.

    A call inside a call of the same module, such as ``super().forward(x)``, is a part of that call.
    """

    @functools.wraps(before)
    def forward(module: nn.Module, /, *args: object, **kwargs: object) -> object:
        function = before.__get__(module, type(module))
        running = threading.get_ident(), id(module)
        has_own = type(module) is not kind or "forward" in vars(module)
        if has_own or running in _RUNNING:
            return function(*args, **kwargs)
        _RUNNING.add(running)
        try:
            caller = sys._getframe(1)
            has_run_hooks = caller.f_code in _CALLERS and caller.f_locals.get("self") is module
            # inside torch.vmap and the like, a tensor has no values to observe
            if has_run_hooks or torch._C._functorch.peek_interpreter_stack() is not None:
                return function(*args, **kwargs)
            return _call_with_hooks(module, function, args, kwargs)
        finally:
            _RUNNING.discard(running)

    return forward


def _call_with_hooks(
    module: nn.Module, function: Callable[..., object], args: Any, kwargs: Any
) -> object:
    """Call a function, and run the hooks of hookcli before and after it, as torch does."""
    output = None
    before, after = (
        iter([hook for hook in vars(module)[name].values() if isinstance(hook, Hook)])
        for name in (_BEFORE, _AFTER)
    )
    try:
        for hook in before:
            args, kwargs = hook(module, args, kwargs) or (args, kwargs)
        output = function(*args, **kwargs)
        for hook in after:
            changed = hook(module, args, output)
            output = output if changed is None else changed
    finally:
        for hook in after:  # some are left only if something raised
            if hook.always:
                hook(module, args, None)
    return output


def _change_state(kind: type, before: Any) -> Callable[..., object]:
    """Return a ``__getstate__`` without the hooks of hookcli."""

    @functools.wraps(before)
    def get_state(module: nn.Module) -> object:
        state = before.__get__(module, kind)()
        if not isinstance(state, dict):
            return state
        hooks = [pair for name in (_BEFORE, _AFTER) for pair in state.get(name, {}).items()]
        ours = {number for number, hook in hooks if isinstance(hook, Hook)}
        return state | {
            name: OrderedDict(pair for pair in state[name].items() if pair[0] not in ours)
            for name in _BY_HOOK
            if name in state
        }

    return get_state
