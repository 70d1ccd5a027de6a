"""Models that a Python program holds in memory, by the names that stand for them in a request."""

from __future__ import annotations

import copy
import itertools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary

import torch

from hookcli.config import DTYPES
from hookcli.errors import RequestError
from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.own_code import OwnCode, check_structure
from hookcli.networks.source import ModelWithWeights
from hookcli.outside.foreign import ForeignCode
from hookcli.outside.urls import IN_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from hookcli.config import ModelRequest

_KNOWN = {getattr(torch, name) for name in DTYPES}
_held: dict[str, nn.Module] = {}
_as_they_are: set[str] = set()  # the names of models that keep their dtypes
_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


@contextmanager
def hold(module: nn.Module, *, copies: bool, keeps_dtype: bool) -> Iterator[str]:
    """Yield the name of a model, or of its copy, in the block; other threads wait for the model."""
    kind = type(module).__name__
    with _locks.setdefault(module, threading.RLock()):
        name = next(n for n in _list_names(kind) if n not in _held)
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
    """Return whether ``name`` stands for a model that keeps its dtypes."""
    return name in _as_they_are


class Held(OwnCode):
    """A model that a Python program holds: it keeps its weights and its memory format."""

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
        """Whether the model runs in the dtypes that it has, as far as hookcli knows them."""
        values = itertools.chain(_held[self.name].parameters(), _held[self.name].buffers())
        floats = {each.dtype for each in values if each.is_floating_point()}
        return self.name in _as_they_are and len(floats) > 1 and floats <= _KNOWN

    def load_as_made(self, request: ModelRequest) -> ModelWithWeights:
        module = self.builder(**dict(request.arguments))
        return ModelWithWeights(module, "as in memory", sha256=hash_weights(module))
