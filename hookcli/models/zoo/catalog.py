"""Torchvision's models: their names, builders, weights, and the weights' metadata."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, get_args

import torch

from hookcli.errors import RequestError, UnknownModelError
from hookcli.models.zoo.torchvision_import import torchvision
from hookcli.records.rows import CatalogEntry, CatalogTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

    Transform: TypeAlias = Callable[..., Any]  # returns a tensor, or for flow a pair

_MIB = 1.048576  # torchvision states sizes in units of 2**20 bytes


class Preset(Protocol):
    """A transform of torchvision.

    Attributes:
        crop_size: the sides of the crop; only presets that crop have it.
        resize_size: the sides after resizing; only presets that resize have it.
    """

    crop_size: list[int]
    resize_size: list[int]

    def __call__(self, *pictures: object) -> Any:
        """Return the pixels of pictures."""


class WeightsMember(Protocol):
    """One set of trained weights of a torchvision model, with its metadata."""

    name: str
    url: str
    transforms: Callable[..., Preset]
    meta: Mapping[str, Any]


class WeightsEnum(Protocol):
    """All trained weights of a torchvision model."""

    DEFAULT: WeightsMember
    __members__: Mapping[str, WeightsMember]

    def __iter__(self) -> Iterator[WeightsMember]:
        """Iterate over the members; an alias such as ``DEFAULT`` is not repeated."""

    def __getitem__(self, name: str) -> WeightsMember:
        """Return the member of this name."""


def list_catalog(pattern: str = "*") -> tuple[CatalogEntry, ...]:
    """Return every torchvision model whose name matches the glob ``pattern``, sorted by name.

    Raises:
        UnknownModelError: no name matches.
    """
    names = fnmatch.filter(list_names(), pattern)
    if not names and fnmatch.filter(list_names(), f"{pattern}*"):
        raise RequestError(f"no model is called {pattern!r}", f"hookcli models '{pattern}*'")
    if not names and pattern.startswith("timm"):
        raise RequestError(
            "hookcli models lists torchvision's models, not timm's",
            "timm's: python -c 'import timm; print(*timm.list_models())'",
        )
    if not names:
        raise UnknownModelError(pattern, list_names())
    return tuple(_describe(name) for name in names)


def list_names() -> list[str]:
    """Return all model names, sorted."""
    return sorted(torchvision.models.list_models())


def find_builder(name: str) -> Callable[..., nn.Module]:
    """Return torchvision's builder of a model.

    Raises:
        UnknownModelError: no model has this name.
    """
    if name not in list_names():
        raise UnknownModelError(name, list_names())
    builder: Callable[..., nn.Module] = torchvision.models.get_model_builder(name)
    return builder


def find_task(name: str) -> CatalogTask:
    """Return the task of a model, derived from the package of its builder."""
    module = find_builder(name).__module__
    return next((task for task in get_args(CatalogTask) if f".{task}." in module), "classification")


def find_weights(name: str) -> WeightsEnum:
    """Return the weights' enum of a model."""
    weights: WeightsEnum = torchvision.models.get_model_weights(name)
    return weights


def cache_file(url: str) -> Path:
    """Return the path at which torch caches the file of ``url``."""
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


def _describe(name: str) -> CatalogEntry:
    weights = find_weights(name)
    default = weights.DEFAULT
    members = [default, *(member for member in weights if member is not default)]
    operations, size = default.meta.get("_ops"), default.meta.get("_file_size")
    return CatalogEntry(
        name=name,
        task=find_task(name),
        weights=tuple(member.name for member in members),
        params=default.meta.get("num_params"),
        gflops=None if operations is None else round(2 * operations, 3),
        file_mb=None if size is None else round(size * _MIB, 3),
        cached=tuple(member.name for member in members if cache_file(member.url).is_file()),
    )
