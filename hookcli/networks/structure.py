"""The check that hookcli can walk the modules of a model."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from torch import nn

from hookcli.errors import ModelError
from hookcli.outside.foreign import ask
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

# torch walks modules by recursion, with one call per level, inside some other calls.
_OTHER_CALLS = 250
# Independent of Python's recursion limit: the time to name and measure modules grows with the cube
# of the depth, and is 14 s at this depth.
_DEEPEST = 1_000


def check_structure(name: str, model: nn.Module) -> None:
    """Check that the modules of the user's model are nested finitely and named consistently."""
    _check_nesting(name, model, {id(model): ""}, {id(model)})
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


def _check_nesting(name: str, module: nn.Module, outer: Mapping[int, str], known: set[int]) -> None:
    """Refuse a module that contains itself, or many levels; ``outer`` has paths by ``id``."""
    most = min(sys.getrecursionlimit() - _OTHER_CALLS, _DEEPEST)
    if len(outer) > most:
        raise ModelError(
            f"{name} nests its modules more than {most:,} deep",
            "put them side by side in one nn.Sequential",
        )
    for key, child in list(ask(module, "_modules", {}).items()):
        inner = f"{outer[id(module)]}.{key}".removeprefix(".")
        if id(child) in outer:
            raise ModelError(
                f"{name}: {outer[id(child)] or ROOT_LABEL} ({type(child).__name__}) contains"
                f" itself, as {inner}",
                "a module may be used in several places, but not inside itself",
            )
        if isinstance(child, nn.Module) and id(child) not in known:
            known.add(id(child))
            _check_nesting(name, child, {**outer, id(child): inner}, known)
