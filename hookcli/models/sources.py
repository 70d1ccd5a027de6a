"""The sources of models, and the only place in which one of them is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.models.elsewhere import find_elsewhere
from hookcli.models.own_code import OwnCode
from hookcli.models.timm import Timm
from hookcli.models.torchvision import Torchvision

if TYPE_CHECKING:
    from hookcli.models.source import Source

_WITH_PREFIX: tuple[type[Source], ...] = (Timm,)


def choose_source(name: str) -> type[Source]:
    """Return the source of the model called ``name``, whether or not it has such a model."""
    for source in _WITH_PREFIX:
        if name.startswith(source.prefix):
            return source
    return OwnCode if ":" in name else Torchvision


def find_model(name: str, seed: int) -> Source:
    """Return the model called ``name``, as ``Source.find`` does, or say where such a name is used.

    ``name`` is a torchvision name, ``timm:NAME``, ``package.module:factory`` or
    ``file.py:factory``. The last two import, and so run, the code that they name.
    """
    source = choose_source(name)
    if not source.prefix and (error := find_elsewhere(name)) is not None:
        raise error
    return source.find(name, seed)
