"""Torchvision's models: their names, builders, weights, and the weights' metadata."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hookcli.errors import RequestError, UnknownModelError
from hookcli.models.tasks.choose import find_task
from hookcli.models.tasks.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

    from hookcli.models.tasks.presets import Preset
    from hookcli.models.tasks.task import Task

_MIB = 1.048576  # torchvision states sizes in units of 2**20 bytes


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


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A torchvision model as the metadata of its weights describes it.

    Attributes:
        name: the name that ``inspect`` takes.
        task: ``classification``, ``detection``, ``segmentation``, ``video``, ``optical_flow`` or
            ``quantization`` (quantized classification models).
        weights: the members of its weights, the default first.
        params: the number of parameters with the default weights.
        gflops: 1e9 floating-point operations for one input, counting two per multiply-add
            (torchvision's own figure counts one).
        file_mb: the size of the default weights' file, in 1e6 bytes.
        cached: the members whose file is in torch's cache.
    """

    name: str
    task: str
    weights: tuple[str, ...]
    params: int | None
    gflops: float | None
    file_mb: float | None
    cached: tuple[str, ...]


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


def task_of(name: str) -> Task:
    """Return the task of a model, derived from the package of its builder."""
    return find_task(find_builder(name).__module__)


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
        task=task_of(name).word,
        weights=tuple(member.name for member in members),
        params=default.meta.get("num_params"),
        gflops=None if operations is None else round(2 * operations, 3),
        file_mb=None if size is None else round(size * _MIB, 3),
        cached=tuple(member.name for member in members if cache_file(member.url).is_file()),
    )
