"""Make torchvision's transforms with the user's changes, and describe transforms in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from hookcli.config import ModelRequest

    Transform: TypeAlias = Callable[..., Any]  # returns a tensor, or for flow a pair
    Preset: TypeAlias = Any  # a transform of torchvision; some have crop_size and resize_size
    MakePreset: TypeAlias = Callable[..., Preset]  # its arguments are the changes

SCALED = "scaled to 0 to 1"


def make_imagenet(**changes: object) -> Preset:
    sides = {"crop_size": 224, "resize_size": 256}
    return torchvision.transforms._presets.ImageClassification(**sides | changes)


def change_preset(request: ModelRequest, module: nn.Module, make_preset: MakePreset) -> Preset:
    # Without a requested ``resize``, the resized and the cropped side keep their ratio.
    own, built_for = make_preset(), ask(module, "image_size")
    changes = colour_changes(request)
    side = request.size or (built_for if isinstance(built_for, int) else own.crop_size[0])
    if side == own.crop_size[0] and request.resize is None:
        return make_preset(**changes)
    resize = [round(side * length / own.crop_size[0]) for length in own.resize_size]
    resize = [request.resize] if request.resize is not None else resize
    if len(own.crop_size) > 1:
        sides = {"crop_size": [side] * len(own.crop_size), "resize_size": resize}
        return make_preset(**changes, **sides)
    return make_preset(**changes, crop_size=side, resize_size=resize[0])


def requested_changes(request: ModelRequest) -> dict[str, object]:
    wanted = {name: getattr(request, name) for name in ("mean", "std", "interpolation")}
    return {name: value for name, value in wanted.items() if value is not None}


def colour_changes(request: ModelRequest) -> dict[str, object]:
    changes = requested_changes(request)
    if (name := request.interpolation) is not None:
        changes["interpolation"] = torchvision.transforms.InterpolationMode(name)
    return changes


def describe_transform(transform: Any) -> str:
    steps = getattr(transform, "transforms", [transform])  # timm combines several
    return ", ".join(_describe(step) for step in steps)


def _describe(step: Any) -> str:
    describe = STEPS.get(type(step).__name__)
    return describe(step) if describe else " ".join(repr(step).split())


def _describe_preset(preset: Any) -> str:
    crop = getattr(preset, "crop_size", None)
    parts = [_resize_text(preset.resize_size, preset), *([crop_text(crop)] if crop else [])]
    return ", ".join([*parts, SCALED, normalization_text(preset.mean, preset.std)])


def _describe_resize(step: Any) -> str:
    limit = f", at most {step.max_size} on the long side" if step.max_size else ""
    return _resize_text(step.size, step) + limit


def _resize_text(size: int | Iterable[int], how: Any) -> str:
    smooth = "" if getattr(how, "antialias", True) else ", without antialiasing"
    return f"resized to {size_text(size)} ({how.interpolation.value}{smooth})"


def size_text(size: int | Iterable[int]) -> str:
    sides = [size] if isinstance(size, int) else list(size)
    one = f"{sides[0]} pixels on the short side"
    return one if len(sides) == 1 else f"{shape_text(sides)} pixels"


def crop_text(size: int | Iterable[int]) -> str:
    sides = [size] if isinstance(size, int) else list(size)
    return f"cropped to {shape_text((sides[0], sides[-1]))} in the middle"


def normalization_text(mean: Iterable[Any], std: Iterable[Any]) -> str:
    subtracted, divided = [float(each) for each in mean], [float(each) for each in std]
    if not any(subtracted) and all(each == 1 for each in divided):
        return "not normalized"
    if not any(subtracted) and all(round(each * 255, 6) == 1 for each in divided):
        return "multiplied by 255"
    return mean_text(subtracted, divided)


def mean_text(mean: Iterable[float], std: Iterable[float]) -> str:
    numbers = (" ".join(f"{value:.6g}" for value in each) for each in (mean, std))
    return "mean {}, standard deviation {}".format(*numbers)


STEPS: dict[str, Callable[[Any], str]] = {
    "ImageClassification": _describe_preset,
    "SemanticSegmentation": _describe_preset,
    "VideoClassification": _describe_preset,
    "ObjectDetection": lambda _: f"{SCALED}; the model itself resizes and normalizes",
    "OpticalFlow": lambda _: "scaled to -1 to 1",
    "Resize": _describe_resize,
    "CenterCrop": lambda step: crop_text(step.size),
    "ToTensor": lambda _: SCALED,
    "MaybeToTensor": lambda _: SCALED,
    "Normalize": lambda step: normalization_text(step.mean, step.std),
}
