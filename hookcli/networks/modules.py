"""List a model's modules and all paths of each, and run compiled models without the compiler."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hookcli.outside.foreign import ForeignCode, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

WRAPPER, WRAPPED = "OptimizedModule", "_orig_mod"  # torch.compile's module, and the one underneath
_WRAPPED = re.compile(rf"(^|\.){WRAPPED}(?=\.|$)")
_NOTE = "compiled: its layers are run in eager mode; the compiled one: `against=('compile',)`"
_COMPILER = "torch._dynamo.eval_frame"
_BLOCKS: list[None] = []  # one item for each block of ``run_eagerly``
_EAGER = ExitStack()  # undoes what the first of these blocks did


def find_modules(model: nn.Module, *, remove_duplicate: bool = True) -> dict[str, nn.Module]:
    pairs = model.named_modules(remove_duplicate=remove_duplicate)
    return {strip_wrapped(path): each for path, each in pairs if not _is_wrapper(each)}


def find_blocks(model: nn.Module) -> str:
    """Return the class of the blocks that have most of the parameters; "" if there are none.

    Blocks are modules with parts, and several of a class are in one ``Sequential`` or list.
    """
    sizes = Counter[str]()
    lists = (nn.Sequential, nn.ModuleList)
    for parent in model.modules():
        parts = [*parent] if isinstance(parent, lists) else []
        blocks = [each for each in parts if any(each.children()) and not isinstance(each, lists)]
        kinds = Counter(type(each).__name__ for each in blocks)
        for each in blocks:
            if kinds[type(each).__name__] > 1:
                sizes[type(each).__name__] += sum(map(torch.numel, each.parameters()))
    best = max(sizes, key=sizes.__getitem__, default="")
    inside = {
        type(part).__name__: sizes[type(part).__name__]
        for outer in model.modules()
        if type(outer).__name__ == best
        for part in outer.modules()
        if type(part).__name__ != best
    }
    inner = max(inside, key=inside.__getitem__, default="")  # the blocks of a Swin's stages
    return inner if inside.get(inner, 0) > sizes[best] / 2 else best


def find_aliases(model: nn.Module) -> dict[str, str]:
    """Map all paths of all modules to the module's first path, such as ``{"a": "a", "b": "a"}``."""
    first: dict[int, str] = {}
    found = find_modules(model, remove_duplicate=False)
    return {path: first.setdefault(id(each), path) for path, each in found.items()}


def strip_wrapped(path: str) -> str:
    return _WRAPPED.sub("", path).removeprefix(".") if WRAPPED in path else path


def unwrap(model: nn.Module) -> nn.Module:
    return find_modules(model)[""] if _is_wrapper(model) else model


def copy_taken(
    name: str, builder: Callable[..., nn.Module], taken: Collection[int], /, **arguments: object
) -> nn.Module:
    copies: dict[int, Any] = {}

    def separate(part: Any) -> Any:
        if id(part) in taken:
            return copy.deepcopy(part, copies)
        for parts in (part._modules, part._parameters) if isinstance(part, nn.Module) else ():
            for key, inner in parts.items():
                parts[key] = separate(inner)
        return part

    model = builder(**arguments)
    hint = "name a function that makes a new model each time: FILE.py:FUNCTION"
    with ForeignCode(f"{name} returns the same modules again, and copying them", hint=hint):
        separated: nn.Module = separate(model)
    return separated


def list_classes(module: nn.Module) -> tuple[type, ...]:
    """Return a module's class and all its base classes.

    A TorchScript module knows only the name of its class. hookcli then looks up this name in
    ``torch.nn`` or, if it is not there, makes an empty class of this name.
    """
    if not isinstance(module, torch.jit.ScriptModule):
        return type(module).__mro__
    name = str(ask(module, "original_name") or type(module).__name__)
    known = ask(nn, name)
    return known.__mro__ if isinstance(known, type) else (type(name, (nn.Module,), {}),)


def note_compiled(model: nn.Module) -> str:
    is_compiled = _COMPILER in sys.modules and any(map(_is_compiled, model.modules()))
    return _NOTE if is_compiled else ""


@contextmanager
def run_eagerly() -> Iterator[None]:
    """Run compiled models eagerly in a ``with`` block, since compiled code skips hooks."""
    if not _BLOCKS:
        _begin()
    _BLOCKS.append(None)
    try:
        yield
    finally:
        _BLOCKS.pop()
        if not _BLOCKS:
            _EAGER.close()


def _begin() -> None:
    if _COMPILER in sys.modules:
        _EAGER.enter_context(torch.compiler.set_stance("force_eager"))
        return
    make: Any = torch.compile  # importing the compiler takes a second: wait until it is needed

    def make_first(*args: Any, **options: Any) -> Any:
        compiled = make(*args, **options)
        _EAGER.close()
        _begin()
        return compiled

    _EAGER.callback(setattr, torch, "compile", make)
    setattr(torch, "compile", make_first)  # noqa: B010  for mypy


def _is_wrapper(module: nn.Module) -> bool:
    return type(module).__name__ == WRAPPER and WRAPPED in module._modules


def _is_compiled(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return False
    held = (*vars(module).values(), inspect.getattr_static(type(module), "forward", None))
    functions = [each for each in held if isinstance(each, (FunctionType, MethodType))]
    return _is_wrapper(module) or any(
        hasattr(each, "_torchdynamo_orig_callable") and not hasattr(each, "_torchdynamo_disable")
        for each in functions
    )
