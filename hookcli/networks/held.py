"""Models that a Python program holds in memory, by the names that stand for them in a request."""

from __future__ import annotations

import copy
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from hookcli.networks.fingerprint import hash_weights
from hookcli.networks.own_code import OwnCode
from hookcli.networks.source import ModelWithWeights
from hookcli.networks.structure import check_structure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from hookcli.config import ModelRequest

_held: dict[str, nn.Module] = {}


@contextmanager
def hold(module: nn.Module, *, copies: bool) -> Iterator[str]:
    """Yield the name that stands for a model, or for a copy of it, while the block lasts."""
    kind = f"{type(module).__name__} in memory"
    name = next(n for n in _list_names(kind) if n not in _held)
    _held[name] = copy.deepcopy(module) if copies else module
    try:
        yield name
    finally:
        del _held[name]


def _list_names(kind: str) -> Iterator[str]:
    yield kind
    yield from (f"{kind} {number}" for number in itertools.count(2))


class Held(OwnCode):
    """A model that a Python program holds: it keeps its weights and its memory format."""

    label: ClassVar[str] = "memory"
    keeps_format: ClassVar[bool] = True

    @classmethod
    def takes(cls, name: str) -> bool:
        return name in _held

    @classmethod
    def find(cls, name: str, seed: int) -> Held:
        def give() -> nn.Module:
            check_structure(name, _held[name])
            return _held[name]

        return cls(name, give)

    def load_as_made(self, request: ModelRequest) -> ModelWithWeights:
        """Return the model as it is."""
        module = self.builder(**dict(request.arguments))
        return ModelWithWeights(module, "as in memory", sha256=hash_weights(module))
