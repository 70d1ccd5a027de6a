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
_ROOM = 250
_MOST = 1_000  # however deep Python may go: to name and measure them takes time with the cube of it, then 14 s


def check_structure(name: str, model: nn.Module) -> None:
    """See that ``model`` has an end, and says the same of its modules wherever it is asked.

    Args:
        name: what the user calls the model.
        model: its own methods may raise anything.

    Raises:
        ModelError: a module contains itself, they are nested too deep, or ``named_modules`` names
            what is not there.
    """
    depth, most = _measure_depth(name, model), min(sys.getrecursionlimit() - _ROOM, _MOST)
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
    names, places, running = [""], {id(model): 0}, [(model, _parts_of(model))]
    deepest = 1
    while running:
        module, parts = running[-1]
        part_name, part = next(parts, ("", None))
        if part is None:
            running.pop()
            names.pop()
            del places[id(module)]
        elif id(part) in places:
            outer = ".".join(names[1 : places[id(part)] + 1]) or ROOT_LABEL
            inner = ".".join([*names[1:], part_name])
            raise ModelError(
                f"{name}: {outer} ({type(part).__name__}) contains itself, as {inner}",
                "a module may stand in several places, and not inside itself",
            )
        elif id(part) not in known:
            known.add(id(part))
            names.append(part_name)
            places[id(part)] = len(running)
            running.append((part, _parts_of(part)))
            deepest = max(deepest, len(running))
    return deepest


def _parts_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    parts = ask(module, "_modules", {})
    return ((name, part) for name, part in list(parts.items()) if isinstance(part, nn.Module))
