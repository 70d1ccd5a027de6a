"""Transforms as torchvision's weights bring them, with the changes that users ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from hookcli.models.tasks.torchvision_import import torchvision
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from hookcli.config import ModelRequest

    Transform: TypeAlias = Callable[..., Any]  # returns a tensor, or for flow a pair
    MakePreset: TypeAlias = Callable[..., "Preset"]  # takes what is to be changed


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


def make_imagenet(**changes: object) -> Preset:
    """Return the preset of most classifiers of ImageNet, for models that have none of their own."""
    sides = {"crop_size": 224, "resize_size": 256}
    preset: Preset = torchvision.transforms._presets.ImageClassification(**sides | changes)
    return preset


def change_preset(request: ModelRequest, module: nn.Module, make_preset: MakePreset) -> Preset:
    """Return a preset that resizes and crops, with the changes that ``request`` asks for."""
    own_side = ask(module, "image_size")
    sides = _side_changes(make_preset(), request, own_side if isinstance(own_side, int) else None)
    return make_preset(**colour_changes(request), **sides)


def colour_changes(request: ModelRequest) -> Mapping[str, object]:
    """Return the arguments of a preset for the colours and interpolation that were asked for."""
    changes: dict[str, object] = {}
    if request.mean is not None:
        changes["mean"] = request.mean
    if request.std is not None:
        changes["std"] = request.std
    if request.interpolation is not None:
        mode = torchvision.transforms.InterpolationMode(request.interpolation)
        changes["interpolation"] = mode
    return changes


def _side_changes(
    own: Preset, request: ModelRequest, own_side: int | None
) -> Mapping[str, int | list[int]]:
    """Return the arguments of a preset that resizes and crops, for the sides that were asked for.

    The proportion between resizing and cropping is the preset's own unless ``resize`` is given.

    Args:
        own: the preset without changes.
        request: ``size`` and ``resize`` are used.
        own_side: the side of the pictures that the network is made for, if it specifies one.
    """
    side = request.size or own_side or own.crop_size[0]
    if side == own.crop_size[0] and request.resize is None:
        return {}
    resize = [round(side * length / own.crop_size[0]) for length in own.resize_size]
    resize = [request.resize] if request.resize is not None else resize
    if len(own.crop_size) > 1:
        return {"crop_size": [side] * len(own.crop_size), "resize_size": resize}
    return {"crop_size": side, "resize_size": resize[0]}
