"""Where a model comes from: torchvision by name, timm by ``timm:NAME``, or the user's own code."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from hookcli.errors import ModelError, RequestError
from hookcli.files import open_regular
from hookcli.foreign import ForeignCode, Surroundings
from hookcli.models.zoo.catalog import find_builder, find_task, find_weights
from hookcli.models.zoo.elsewhere import find_elsewhere
from hookcli.models.zoo.own_code import list_definitions
from hookcli.models.zoo.structure import check_structure
from hookcli.models.zoo.timm_models import find_timm_builder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from hookcli.models.zoo.catalog import Preset, WeightsEnum

OWN, TIMM = "own", "timm"
_FUNCTION = "FUNCTION in FILE.py:FUNCTION must be a function or a class that makes an nn.Module"


@dataclass(frozen=True, slots=True)
class Origin:
    """A model that can be built.

    Attributes:
        name: the name as the user wrote it.
        task: torchvision's task, ``timm``, or ``own``.
        builder: builds the module from keyword arguments.
        weights: torchvision's enum of weights; None for other models.
    """

    name: str
    task: str
    builder: Callable[..., nn.Module]
    weights: WeightsEnum | None = None

    @property
    def preset(self) -> Callable[..., Preset] | None:
        """The maker of torchvision's default preprocessing; None for other models."""
        return None if self.weights is None else self.weights.DEFAULT.transforms

    @property
    def categories(self) -> tuple[str, ...]:
        """The class names by index of torchvision's default weights; empty for other models."""
        return (
            () if self.weights is None else tuple(self.weights.DEFAULT.meta.get("categories", ()))
        )

    def guard(self) -> contextlib.AbstractContextManager[None]:
        """Return a ``with`` block for using the model in any way.

        A model of the user's own may raise any exception; it becomes a ModelError.
        """
        return ForeignCode(self.name) if self.task == OWN else contextlib.nullcontext()


def find_origin(name: str, seed: int) -> Origin:
    """Return the origin of the model called ``name``.

    ``name`` is a torchvision name, ``timm:NAME``, ``package.module:factory`` or
    ``file.py:factory``. The last two import, and so run, the code that they name, after
    ``torch.manual_seed(seed)``.

    Raises:
        UnknownModelError: no model has this name.
        RequestError: timm is not installed, or there is no such file, module or factory.
        ModelError: the code raised an exception.
    """
    if name.startswith("timm:"):
        return Origin(name, TIMM, find_timm_builder(name.removeprefix("timm:")))
    if (error := find_elsewhere(name)) is not None:
        raise error
    if ":" in name:
        return Origin(name, OWN, _own_builder(name, seed))
    if name.endswith(".py"):
        names = ", ".join(f"{name}:{each}" for each in list_definitions(Path(name))[:3])
        raise RequestError(
            f"{name!r} is a file, not a model in it", names or "write FILE.py:FUNCTION"
        )
    return Origin(name, find_task(name), find_builder(name), find_weights(name))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Return a ``with`` block that starts with ``torch.manual_seed(seed)``.

    The caller's random generator is left unchanged.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _own_builder(name: str, seed: int) -> Callable[..., nn.Module]:
    place, _, path = name.rpartition(":")
    surroundings = Surroundings()
    with ForeignCode(f"the code in {place}", surroundings), seeded(seed):
        target: object = import_code(place)
        for attribute in path.split("."):  # a module may run code for its attributes too
            if not hasattr(target, attribute):
                close = difflib.get_close_matches(attribute, dir(target), n=3)
                raise RequestError(
                    f"{place} has no {path!r}",
                    f"did you mean {', '.join(close)}?" if close else "write FILE.py:FUNCTION",
                )
            target = getattr(target, attribute)
    return partial(_make_own, name, target, surroundings)


def _make_own(
    name: str, target: object, surroundings: Surroundings, /, **arguments: object
) -> nn.Module:
    """Return the module that ``target`` is, or that it returns as a factory.

    Raises:
        ModelError: the factory raised an exception, or the result is not a module that can be
            walked.
    """
    with ForeignCode(name, surroundings):
        made = _call_factory(name, target, arguments)
        check_structure(name, made)
    return made


def _call_factory(name: str, target: object, arguments: Mapping[str, object]) -> nn.Module:
    if isinstance(target, nn.Module):
        if arguments:
            raise RequestError(f"{name} is a module already, and takes no --model-arg")
        return target
    if not callable(target):
        kind = type(target).__name__
        raise ModelError(f"{name} is of type {kind}: neither a module nor a factory", _FUNCTION)
    made = target(**arguments)
    if not isinstance(made, nn.Module):
        raise ModelError(f"{name} returned a {type(made).__name__}, not an nn.Module", _FUNCTION)
    return made


def import_code(place: str) -> ModuleType:
    """Import, and so run, the module that ``FILE.py`` or ``PACKAGE.MODULE`` names.

    Raises:
        RequestError: there is no such module.
    """
    return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)


def _import_file(file: Path) -> ModuleType:
    try:
        open_regular(file).close()  # Python would block on a pipe
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {str(file)!r}", "write FILE.py:FUNCTION") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(
            f"cannot read {str(file)!r}: {reason}", "write FILE.py:FUNCTION"
        ) from error
    sys.path.insert(0, str(file.parent.resolve()))  # as for a script: it may import its neighbours
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise RequestError(f"{str(file)!r} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    absent = RequestError(
        f"there is no Python module {name!r} here",
        "write PACKAGE.MODULE:FUNCTION, FILE.py:FUNCTION or timm:NAME",
    )
    if not name or name.startswith("."):
        raise absent
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise absent from error
        raise
