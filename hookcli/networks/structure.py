"""The check that hookcli can walk the modules of a model.

It runs once for a model of the user's own, before anything relies on its structure.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from torch import nn

from hookcli.errors import ModelError
from hookcli.outside.foreign import ask
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

# torch walks modules by recursion, with one call per level, inside some other calls.
_OTHER_CALLS = 250
# Independent of Python's recursion limit: the time to name and measure modules grows with the cube
# of the depth, and is 14 s at this depth.
_DEEPEST = 1_000


def check_structure(name: str, model: nn.Module) -> None:
    """Check that the modules of ``model`` are nested finitely and named consistently.

    ``name`` is the user's name for the model. The model's own methods may raise any exception.

    Raises:
        ModelError: a module contains itself, modules are nested too deep, or ``named_modules``
            names a module that does not exist.
    """
    most = min(sys.getrecursionlimit() - _OTHER_CALLS, _DEEPEST)
    depth = _measure_depth(name, model)
    if depth > most:
        raise ModelError(
            f"{name} nests its modules {depth:,} deep, and {most:,} levels can be walked",
            "put them side by side in one nn.Sequential",
        )
    for path, module in model.named_modules():
        kind = type(module).__name__
        is_module = issubclass(module.__class__, nn.Module)  # __class__ may be overridden
        names = filter(None, path.split("."))  # TorchScript has no get_submodule
        if not is_module or functools.reduce(getattr, names, model) is not module:
            raise ModelError(
                f"{name}: named_modules returns {path!r} ({kind}), and get_submodule"
                " a different module or none",
                "do not override named_modules of nn.Module",
            )
    for parameter in model.parameters():
        parameter.is_floating_point()


def _measure_depth(name: str, model: nn.Module) -> int:
    """Return how many levels of modules are nested in one another, without recursion."""
    known = {id(model)}
    path, level_of, open_modules = [""], {id(model): 0}, [(model, _children_of(model))]
    deepest = 1
    while open_modules:
        module, children = open_modules[-1]
        child_name, child = next(children, ("", None))
        if child is None:
            open_modules.pop()
            path.pop()
            del level_of[id(module)]
        elif id(child) in level_of:
            outer = ".".join(path[1 : level_of[id(child)] + 1]) or ROOT_LABEL
            inner = ".".join([*path[1:], child_name])
            raise ModelError(
                f"{name}: {outer} ({type(child).__name__}) contains itself, as {inner}",
                "a module may be used in several places, but not inside itself",
            )
        elif id(child) not in known:
            known.add(id(child))
            path.append(child_name)
            level_of[id(child)] = len(open_modules)
            open_modules.append((child, _children_of(child)))
            deepest = max(deepest, len(open_modules))
    return deepest


def _children_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    children = ask(module, "_modules", {})
    return ((name, child) for name, child in list(children.items()) if isinstance(child, nn.Module))
