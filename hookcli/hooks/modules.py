"""The modules of a model, where parts are compiled by torch.compile or belong to TorchScript."""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import ExitStack, contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

WRAPPER, WRAPPED = "OptimizedModule", "_orig_mod"  # the class, and the attribute underneath
_NOTE = "compiled: its layers are run in eager mode; the compiled one: `against=('compile',)`"
_COMPILER = "torch._dynamo.eval_frame"
_COMPILED = "_torchdynamo_orig_callable"  # an attribute of every function that torch.compile made


def find_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model by their paths, in the order of ``named_modules()``.

    Instead of a module that ``torch.compile(module)`` made, the result has the module underneath,
    so that the paths are the same as without torch.compile.
    """
    return {
        strip_wrapped(path): module
        for path, module in model.named_modules()
        if not _is_wrapper(module)
    }


def strip_wrapped(name: str) -> str:
    """Return the path of a module or tensor as it is without torch.compile."""
    return (
        ".".join(part for part in name.split(".") if part != WRAPPED) if WRAPPED in name else name
    )


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module underneath if ``torch.compile(module)`` made ``model``."""
    return unwrap(model._modules[WRAPPED]) if _is_wrapper(model) else model  # type: ignore[arg-type]


def list_classes(module: nn.Module) -> tuple[type, ...]:
    """Return the class of a module, and the base classes of the class.

    A part of TorchScript counts as the class that was scripted or traced. TorchScript stores only
    the name, so the base classes are known only for the classes of ``torch.nn``.
    """
    if not isinstance(module, torch.jit.ScriptModule):
        return type(module).__mro__
    name = str(ask(module, "original_name") or type(module).__name__)
    known = ask(nn, name)
    return known.__mro__ if isinstance(known, type) else (type(name, (nn.Module,), {}), nn.Module)


def note_compiled(model: nn.Module) -> str:
    """Return a note if torch.compile made any module of a model, or a function in a module."""
    is_compiled = _COMPILER in sys.modules and any(map(_is_compiled, model.modules()))
    return _NOTE if is_compiled else ""


def run_eagerly() -> AbstractContextManager[None]:
    """Return a context manager in which compiled modules and functions run in eager mode.

    Hooks do not fire in compiled code, and torch.compile cannot trace the hooks of hookcli.
    """
    return _EAGER.entered()


class _Eager:
    """Counts the blocks that need eager mode; the first one sets it, and the last one ends it."""

    def __init__(self) -> None:
        self._blocks = 0
        self._stack = ExitStack()

    @contextmanager
    def entered(self) -> Iterator[None]:
        if not self._blocks:
            self._begin()
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1
            if not self._blocks:
                self._stack.close()

    def _begin(self) -> None:
        if _COMPILER in sys.modules:
            self._stack.enter_context(torch.compiler.set_stance("force_eager"))
            return
        make = torch.compile  # importing the compiler now would take a second

        @functools.wraps(make)
        def compile_first(*args: Any, **options: Any) -> Any:
            compiled = make(*args, **options)
            self._stack.close()
            self._begin()
            return compiled

        self._stack.callback(setattr, torch, "compile", make)
        setattr(torch, "compile", compile_first)  # noqa: B010  for mypy


_EAGER = _Eager()


def _is_wrapper(module: nn.Module) -> bool:
    return type(module).__name__ == WRAPPER and WRAPPED in module._modules


def _is_compiled(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return False
    held = (*vars(module).values(), inspect.getattr_static(type(module), "forward", None))
    functions = (each for each in held if isinstance(each, (FunctionType, MethodType)))
    return _is_wrapper(module) or any(hasattr(each, _COMPILED) for each in functions)
