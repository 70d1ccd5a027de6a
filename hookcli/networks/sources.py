"""List all sources of models, and choose the source of a model by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.networks.elsewhere import find_elsewhere
from hookcli.networks.open_clip import OpenClip
from hookcli.networks.own_code import Held, OwnCode
from hookcli.networks.smp import Smp
from hookcli.networks.timm import Timm
from hookcli.networks.torchvision import Torchvision
from hookcli.networks.transformers import Transformers

if TYPE_CHECKING:
    from hookcli.networks.source import Source

SOURCES: tuple[type[Source], ...] = (Held, Timm, Transformers, OpenClip, Smp, OwnCode, Torchvision)
"""The sources, in the order in which ``choose_source`` asks whether a name is theirs."""
LIBRARIES = frozenset(source.library for source in SOURCES if source.library)


def choose_source(name: str) -> type[Source]:
    return next(source for source in SOURCES if source.takes(name))


def find_model(name: str, seed: int) -> Source:
    """Find the model ``name`` without building it; raise a RequestError with a hint if it is wrong.

    This may import the user's file; ``seed`` seeds the random numbers that the file's code draws.
    """
    source = choose_source(name)
    has_any_name = source is not Held and not source.prefix
    if has_any_name and (error := find_elsewhere(name, SOURCES)) is not None:
        raise error
    return source.find(name, seed)
