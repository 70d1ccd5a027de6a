"""Find the user's models, in memory or in code (``FILE.py:FUNCTION``), and check their modules."""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import importlib.util
import itertools
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from hookcli.config import DTYPES
from hookcli.errors import ModelError, RequestError
from hookcli.networks.build import build_random, seeded
from hookcli.networks.code_files import split_name
from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.source import ModelWithWeights, Source
from hookcli.outside.files import open_regular
from hookcli.outside.foreign import ForeignCode, Surroundings, ask
from hookcli.outside.urls import HELD, IN_MEMORY
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from hookcli.config import ModelRequest


_WRITE = "write FILE.py:FUNCTION"
_FUNCTION = "FUNCTION in FILE.py:FUNCTION must be a function or a class that makes an nn.Module"
_KNOWN = {getattr(torch, name) for name in DTYPES}
_held: dict[str, nn.Module] = {}
_as_they_are: set[str] = set()  # the names of models that keep their dtypes
_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


class OwnCode(Source):
    is_known: ClassVar[bool] = False
    label: ClassVar[str] = "own"
    reserved: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def takes(cls, name: str) -> bool:
        return ":" in name

    @classmethod
    def find(cls, name: str, seed: int) -> OwnCode:
        if name.startswith(HELD):
            raise RequestError("a run is no model", "give the model that made it, or its name")
        return cls(name, _find_builder(name, seed))

    def guard(self) -> ForeignCode:
        return ForeignCode(self.name)

    def guard_output(self) -> ForeignCode:
        hint = "let the model return tensors, or lists and dicts of tensors"
        return ForeignCode(f"reading the output of {self.name}", hint=hint)

    def load_as_made(self, request: ModelRequest) -> ModelWithWeights:
        module = build_random(self, request)
        return ModelWithWeights(
            module,
            f"as {self.name} made them (seed {request.seed})",
            warning=f"the weights are as {self.name} made them, trained or not",
            sha256=hash_weights(module),
        )


def _find_builder(name: str, seed: int) -> Callable[..., nn.Module]:
    origin, path = split_name(name)
    surroundings = Surroundings()
    with ForeignCode(f"the code in {origin}", surroundings), seeded(seed):
        target: object = import_code(origin)
        for attribute in path.split("."):  # a module may also run code when an attribute is read
            if not hasattr(target, attribute):
                close = difflib.get_close_matches(attribute, dir(target), n=3)
                hint = f"did you mean {', '.join(close)}?" if close else _WRITE
                hint = f"write {path}, without a prefix" if origin == "torchvision" else hint
                raise RequestError(f"{origin} has no {path!r}", hint)
            target = getattr(target, attribute)
    return functools.partial(_make_own, name, target, surroundings)


def _make_own(
    name: str, target: object, surroundings: Surroundings, /, **arguments: object
) -> nn.Module:
    with ForeignCode(name, surroundings):
        made = _call_factory(name, target, arguments)
        check_structure(name, made)
    return made


def _call_factory(name: str, target: object, arguments: Mapping[str, object]) -> nn.Module:
    if isinstance(target, nn.Module):
        if arguments:
            raise RequestError(f"{name} is a module already, and takes no `arguments`")
        return target
    if not callable(target):
        kind = type(target).__name__
        raise ModelError(f"{name} is of type {kind}: neither a module nor a factory", _FUNCTION)
    made = target(**arguments)
    if not isinstance(made, nn.Module):
        raise ModelError(f"{name} returned a {type(made).__name__}, not an nn.Module", _FUNCTION)
    return made


def import_code(origin: str) -> ModuleType:
    return _import_file(Path(origin)) if origin.endswith(".py") else _import_module(origin)


def _import_file(file: Path) -> ModuleType:
    try:
        open_regular(file).close()  # Python would block on a pipe
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {str(file)!r}", _WRITE) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"cannot read {str(file)!r}: {reason}", _WRITE) from error
    sys.path.insert(0, str(file.parent.resolve()))  # as for a script: it may import its neighbours
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise RequestError(f"{str(file)!r} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    hint = "write PACKAGE.MODULE:FUNCTION, FILE.py:FUNCTION or timm:NAME"
    not_found = RequestError(f"there is no Python module {name!r} here", hint)
    if not name or name.startswith("."):
        raise not_found
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise not_found from error
        raise


def check_structure(name: str, model: nn.Module) -> None:
    _check_loops(name, model, {id(model): ""}, {id(model)})
    for path, module in model.named_modules():
        kind = type(module).__name__
        is_module = issubclass(module.__class__, nn.Module)  # __class__ may be overridden
        names = filter(None, path.split("."))  # TorchScript has no get_submodule
        if not is_module or functools.reduce(getattr, names, model) is not module:
            what = f"{name}: named_modules returns {path!r} ({kind}), and get_submodule"
            hint = "do not override named_modules of nn.Module"
            raise ModelError(f"{what} a different module or none", hint)
    for parameter in model.parameters():
        parameter.is_floating_point()


def _check_loops(name: str, module: nn.Module, outer: Mapping[int, str], known: set[int]) -> None:
    for key, child in list(ask(module, "_modules", {}).items()):
        inner = f"{outer[id(module)]}.{key}".removeprefix(".")
        if id(child) in outer:
            path = outer[id(child)] or ROOT_LABEL
            what = f"{name}: {path} ({type(child).__name__}) contains itself, as {inner}"
            raise ModelError(what, "a module may be used in several places, but not inside itself")
        if isinstance(child, nn.Module) and id(child) not in known:
            known.add(id(child))
            _check_loops(name, child, {**outer, id(child): inner}, known)


@contextmanager
def hold(module: nn.Module, *, copies: bool, keeps_dtype: bool) -> Iterator[str]:
    """Yield a name by which the ``with`` block can load ``module``, which is only in memory.

    With ``copies``, the block gets a deep copy of the module. With ``keeps_dtype``, a model whose
    values have several dtypes keeps them. If another thread holds the same module, hookcli waits.
    """
    with _locks.setdefault(module, threading.RLock()):
        name = next(n for n in _list_names(type(module).__name__) if n not in _held)
        _held[name] = module
        if copies:
            with ForeignCode(f"copying the {name}"):
                _held[name] = copy.deepcopy(module)
        if keeps_dtype:
            _as_they_are.add(name)
        try:
            yield name
        finally:
            del _held[name]
            _as_they_are.discard(name)


def _list_names(kind: str) -> Iterator[str]:
    yield f"{kind}{IN_MEMORY}"
    yield from (f"{kind} {number}{IN_MEMORY}" for number in itertools.count(2))


def is_as_it_is(name: str) -> bool:
    return name in _as_they_are


class Held(OwnCode):
    label: ClassVar[str] = "memory"
    keeps_format: ClassVar[bool] = True

    @classmethod
    def takes(cls, name: str) -> bool:
        return name in _held

    @classmethod
    def find(cls, name: str, seed: int) -> Held:
        def give(**arguments: object) -> nn.Module:
            if arguments:
                raise RequestError("a model in memory is made already", "leave out `arguments`")
            check_structure(name, _held[name])
            return _held[name]

        return cls(name, give)

    @property
    def keeps_dtype(self) -> bool:
        values = itertools.chain(_held[self.name].parameters(), _held[self.name].buffers())
        floats = {each.dtype for each in values if each.is_floating_point()}
        return self.name in _as_they_are and len(floats) > 1 and floats <= _KNOWN

    def load_as_made(self, request: ModelRequest) -> ModelWithWeights:
        module = self.builder(**dict(request.arguments))
        return ModelWithWeights(module, "as in memory", sha256=hash_weights(module))
