"""Whether the modules of a model can be walked: asked once of a model of the user's own, before anything relies on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import nn

from hookcli.errors import ModelError
from hookcli.foreign import ask
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

# torch walks modules by functions that call themselves: one call a level. The others are for what calls them.
_OTHER_CALLS = 250
_DEEPEST = 1_000  # however deep Python may go: to name and measure them takes time with the cube of it, then 14 s


def check_structure(name: str, model: nn.Module) -> None:
    """See that ``model`` has an end, and says the same of its modules wherever it is asked.

    Args:
        name: what the user calls the model.
        model: its own methods may raise anything.

    Raises:
        ModelError: a module contains itself, they are nested too deep, or ``named_modules`` names
            what is not there.
    """
    most = min(sys.getrecursionlimit() - _OTHER_CALLS, _DEEPEST)
    depth = _measure_depth(name, model)
    if depth > most:
        raise ModelError(
            f"{name} nests its modules {depth:,} deep, and {most:,} levels can be walked",
            "put them side by side, as one nn.Sequential does",
        )
    for path, module in model.named_modules():
        kind = type(module).__name__
        is_module = issubclass(module.__class__, nn.Module)  # which may be a property of its own
        if not is_module or model.get_submodule(path) is not module:
            raise ModelError(
                f"{name}: its named_modules gives {path!r} ({kind}), and get_submodule another module or none",
                "leave named_modules as nn.Module has it",
            )
    for parameter in model.parameters():
        parameter.is_floating_point()


def _measure_depth(name: str, model: nn.Module) -> int:
    """How many modules contain one another, without a function that calls itself.

    Raises:
        ModelError: a module contains itself.
    """
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
                "a module may stand in several places, and not inside itself",
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
