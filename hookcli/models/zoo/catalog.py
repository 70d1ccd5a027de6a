"""What torchvision offers: names, builders, weights and what their meta data says."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from hookcli.errors import UnknownModelError
from hookcli.models.zoo.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn

    Transform: TypeAlias = Callable[..., Any]  # of pictures; a tensor, or for flow a pair of them

_MIB = 1.048576  # torchvision states sizes in units of 2**20 bytes
TASKS = ("detection", "segmentation", "video", "optical_flow", "quantization")


class Preset(Protocol):
    """One of torchvision's transforms; what resizes has ``resize_size``, what crops ``crop_size``."""

    crop_size: list[int]
    resize_size: list[int]

    def __call__(self, *pictures: object) -> Any:
        """The pixels of pictures."""


class WeightsMember(Protocol):
    """One set of trained weights of a torchvision model, and what torchvision says of it."""

    name: str
    url: str
    transforms: Callable[..., Preset]
    meta: Mapping[str, Any]


class WeightsEnum(Protocol):
    """The trained weights of a torchvision model."""

    DEFAULT: WeightsMember
    __members__: Mapping[str, WeightsMember]

    def __iter__(self) -> Iterator[WeightsMember]:
        """Each member once."""

    def __getitem__(self, name: str) -> WeightsMember:
        """The member of this name."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One torchvision model as its weights' meta data describes it.

    Attributes:
        name: what ``inspect`` takes.
        task: ``classification``, ``detection``, ``segmentation``, ``video``, ``optical_flow`` or
            ``quantization`` (of classification models).
        weights: members of its weights, the default first.
        params: parameters with the default weights.
        gflops: 1e9 floating point operations for one input, two a multiply-add (torchvision's own
            figure counts a multiply-add as one).
        file_mb: size of the default weights' file, in 1e6 bytes.
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
    """Every torchvision model whose name matches the glob ``pattern``, by name.

    Raises:
        UnknownModelError: none does.
    """
    names = fnmatch.filter(list_names(), pattern)
    if not names:
        raise UnknownModelError(pattern, list_names())
    return tuple(_describe(name) for name in names)


def list_names() -> list[str]:
    """All model names, sorted."""
    return sorted(torchvision.models.list_models())


def find_builder(name: str) -> Callable[..., nn.Module]:
    """Torchvision's builder.

    Raises:
        UnknownModelError: no model has this name.
    """
    if name not in list_names():
        raise UnknownModelError(name, list_names())
    builder: Callable[..., nn.Module] = torchvision.models.get_model_builder(name)
    return builder


def find_task(name: str) -> str:
    """The task that a model is made for, told by where torchvision keeps its builder."""
    module = find_builder(name).__module__
    return next((task for task in TASKS if f".{task}." in module), "classification")


def find_weights(name: str) -> WeightsEnum:
    """The weights' enum of a model."""
    weights: WeightsEnum = torchvision.models.get_model_weights(name)
    return weights


def cache_file(url: str) -> Path:
    """Where torch keeps the file of ``url``."""
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
