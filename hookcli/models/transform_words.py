"""Transforms of torchvision and timm in words, for the manifest and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SCALED = "scaled to 0 to 1"


def describe_transform(transform: Any) -> str:
    """Return a transform in words, on one line; unknown steps are written as Python shows them.

    Example:
        >>> describe_transform(ResNet18_Weights.DEFAULT.transforms())
        'resized to 256 pixels on the short side (bilinear), cropped to 224x224 in the middle, …'
    """
    steps = getattr(transform, "transforms", [transform])  # timm composes several
    return ", ".join(_describe(step) for step in steps)


def _describe(step: Any) -> str:
    describe = _STEPS.get(type(step).__name__)
    return describe(step) if describe else " ".join(repr(step).split())


def _describe_preset(preset: Any) -> str:
    crop = getattr(preset, "crop_size", None)
    parts = [_resized(preset.resize_size, preset), *([_cropped(crop)] if crop else [])]
    return ", ".join([*parts, _SCALED, _normalized(preset)])


def _describe_resize(step: Any) -> str:
    limit = f", at most {step.max_size} on the long side" if step.max_size else ""
    return _resized(step.size, step) + limit


def _resized(size: int | Iterable[int], how: Any) -> str:
    """Return the words of resizing to ``size``: the short side, or height and width."""
    sides = [size] if isinstance(size, int) else list(size)
    one = f"{sides[0]} pixels on the short side"
    smooth = "" if getattr(how, "antialias", True) else ", without antialiasing"
    shown = one if len(sides) == 1 else f"{shape_text(sides)} pixels"
    return f"resized to {shown} ({how.interpolation.value}{smooth})"


def _cropped(size: int | Iterable[int]) -> str:
    sides = [size] if isinstance(size, int) else list(size)
    return f"cropped to {shape_text((sides[0], sides[-1]))} in the middle"


def _normalized(how: Any) -> str:
    return f"mean {_numbers(how.mean)}, standard deviation {_numbers(how.std)}"


def _numbers(values: Iterable[Any]) -> str:
    return " ".join(f"{float(value):.6g}" for value in values)


_STEPS: dict[str, Callable[[Any], str]] = {
    "ImageClassification": _describe_preset,
    "SemanticSegmentation": _describe_preset,
    "VideoClassification": _describe_preset,
    "ObjectDetection": lambda _: f"{_SCALED}; the model itself resizes and normalizes",
    "OpticalFlow": lambda _: "scaled to -1 to 1",
    "Resize": _describe_resize,
    "CenterCrop": lambda step: _cropped(step.size),
    "ToTensor": lambda _: _SCALED,
    "MaybeToTensor": lambda _: _SCALED,
    "Normalize": _normalized,
}
