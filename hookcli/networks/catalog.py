"""List the models that hookcli can load by name, and download their weights ahead of a run."""

from __future__ import annotations

import fnmatch
from functools import partial
from typing import TYPE_CHECKING

from hookcli.config import ModelRequest
from hookcli.errors import RequestError, UnknownModelError
from hookcli.networks import sources
from hookcli.networks.load import load_model
from hookcli.networks.sources import choose_source
from hookcli.networks.torchvision import Torchvision
from hookcli.records.rows import CatalogEntry

if TYPE_CHECKING:
    from hookcli.networks.source import Source


def list_catalog(pattern: str = "*", source: str | None = None) -> tuple[CatalogEntry, ...]:
    shelf = None if source is None else _find_source(source)
    names = list_shelf_names(source)
    prefix = "" if shelf is None else shelf.prefix
    matches = partial(fnmatch.fnmatch, pat=pattern)
    if found := [name for name in names if matches(name) or matches(name.removeprefix(prefix))]:
        return tuple(choose_source(name).describe(name) for name in found)
    if fnmatch.filter(names, f"{pattern}*"):
        hint = f"`hookcli.models({pattern + '*'!r})`"
        raise RequestError(f"no model is called {pattern!r}", hint)
    for other in (each for each in sources.SOURCES if each.prefix and each is not shelf):
        if pattern.startswith((other.prefix, other.library)) or pattern == other.shelf():
            hint = f"`hookcli.models(source={other.shelf()!r})`"
            raise RequestError(f"models of {other.library} are listed on their own", hint)
    raise UnknownModelError(pattern, names)


def list_shelf_names(source: str | None = None) -> list[str]:
    return Torchvision.list_shelf() if source is None else _find_source(source).list_shelf()


def fetch_model(name: str, *, progress: bool = False) -> CatalogEntry:
    loaded = load_model(ModelRequest(name, weights="pretrained", device="cpu", progress=progress))
    weights = (loaded.info.weights,)
    params = sum(parameter.numel() for parameter in loaded.module.parameters())
    return CatalogEntry(name, loaded.task.word, weights, params, None, None, weights)


def _find_source(name: str) -> type[Source]:
    known = {source.shelf(): source for source in sources.SOURCES if source.shelf()}
    if name not in known:
        raise RequestError(f"there is no source {name!r}", f"one of: {', '.join(sorted(known))}")
    return known[name]
