"""The sources of models, and the only place that chooses one of them."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from hookcli.errors import RequestError, UnknownModelError
from hookcli.models.elsewhere import find_elsewhere
from hookcli.models.own_code import OwnCode
from hookcli.models.timm import Timm
from hookcli.models.torchvision import Torchvision

if TYPE_CHECKING:
    from hookcli.models.source import Source
    from hookcli.records.rows import CatalogEntry

SOURCES: tuple[type[Source], ...] = (Timm, OwnCode, Torchvision)
"""In order: ``choose_source`` returns the first source that takes a name."""
LIBRARIES = frozenset(source.library for source in SOURCES if source.library)


def choose_source(name: str) -> type[Source]:
    """Return the source whose names have the form of ``name``; the model itself may not exist."""
    return next(source for source in SOURCES if source.takes(name))


def find_model(name: str, seed: int) -> Source:
    """Return the model called ``name``, as ``Source.find`` does.

    If ``name`` is a file or belongs to another library, the error says what to type instead.
    ``name`` is a torchvision name, ``timm:NAME``, ``package.module:factory`` or
    ``file.py:factory``. The last two forms import, and thereby run, the named code.
    """
    source = choose_source(name)
    if not source.prefix and (error := find_elsewhere(name, SOURCES)) is not None:
        raise error
    return source.find(name, seed)


def list_names() -> list[str]:
    """Return the names of all models that the sources list, sorted."""
    return sorted(name for source in SOURCES for name in source.list_names())


def list_catalog(pattern: str = "*") -> tuple[CatalogEntry, ...]:
    """Return every listed model whose name matches the glob ``pattern``, sorted by name.

    Raises:
        RequestError: no name matches, but ``pattern`` is the beginning of a listed name, or begins
            with the name of a library whose models are not listed.
        UnknownModelError: no name matches.
    """
    names = list_names()
    if found := fnmatch.filter(names, pattern):
        return tuple(choose_source(name).describe(name) for name in found)
    if fnmatch.filter(names, f"{pattern}*"):
        raise RequestError(f"no model is called {pattern!r}", f"`list_catalog({pattern + '*'!r})`")
    for source in SOURCES:
        if source.listing and pattern.startswith(source.library):
            raise RequestError(
                f"`list_catalog` lists torchvision's models, not {source.library}'s",
                f"{source.library}'s: {source.listing}",
            )
    raise UnknownModelError(pattern, names)
