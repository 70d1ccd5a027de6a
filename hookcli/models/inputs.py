"""What is between an image's pixels and a model: the model's arguments, and what its layers see.

The view of the layers is also shown to people, as a JPEG file.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import torch

from hookcli.models.zoo.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

ALONE = ("detection", "video", "optical_flow")  # tasks whose images take one forward each
_JPEG_QUALITY = 90


def _as_they_are(pixels: Tensor) -> tuple[object, ...]:
    return (pixels,)


def _last_two_axes(pixels: Tensor) -> tuple[int, int]:
    return int(pixels.shape[-2]), int(pixels.shape[-1])


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """How the pixels (N, …) of images are passed to a model.

    Attributes:
        arguments_of: returns the arguments of the model's forward, given pixels.
        size_of: returns the height and width of what the layers see, given pixels.
        alone: True if images must go through the model one at a time, because the leading axis of
            its tensors never counts images, or because those of a batch change each other.
        seed: the seed of what a forward in training mode draws.
    """

    arguments_of: Callable[[Tensor], tuple[object, ...]] = _as_they_are
    size_of: Callable[[Tensor], tuple[int, int]] = _last_two_axes
    alone: bool = False
    seed: int = 0


PLAIN = ModelInputs()


class _ImageList(Protocol):
    tensors: Tensor


class DetectionTransform(Protocol):
    """The transform of a torchvision detection model: it normalises, resizes and pads."""

    image_mean: Sequence[float]
    image_std: Sequence[float]
    fixed_size: tuple[int, int] | None
    min_size: tuple[int, ...]
    max_size: int

    def __call__(self, images: list[Tensor], /) -> tuple[_ImageList, object]:
        """Return the batch that the network is given, and its targets."""


def detection_transform(module: nn.Module) -> DetectionTransform:
    """Return the transform inside a torchvision detection model."""
    return cast("DetectionTransform", module.transform)


def to_arguments(task: str, pixels: Tensor) -> tuple[object, ...]:
    """Return the arguments of the model's forward, for pixels (N, …) made by ``to_pixels``."""
    if task == "detection":
        return (list(pixels),)
    if task == "optical_flow":
        return pixels[:, 0], pixels[:, 1]
    return (pixels,)


def seen_size(module: nn.Module, task: str, pixels: Tensor) -> tuple[int, int]:
    """Return the height and width of what the layers see.

    It differs from the size of the pixels for detection models, which resize and pad them.
    """
    return _last_two_axes(_transformed(module, *pixels) if task == "detection" else pixels)


def seen_pixels(module: nn.Module, task: str, pixels: Tensor) -> Tensor:
    """Return the first colour (H, W) of what the layers see, for the pixels (1, …) of one image.

    This is taken from the first frame of a clip, and from the first image of a pair.
    """
    if task == "detection":
        pixels = _transformed(module, pixels[0]).cpu()
    plane = pixels[0]
    while plane.dim() > 2:
        plane = plane[0]
    return plane


def show_pixels(module: nn.Module, task: str, transform: object, pixels: Tensor) -> bytes:
    """Return what the layers see of one image, as a JPEG file.

    A clip is shown by its middle frame, a pair by its first image. Detection models resize and pad
    what they are given; the picture includes the padding, so that feature maps align with it.
    """
    if task == "detection":
        pixels = _transformed(module, pixels)[0].cpu()
    elif task == "video":
        pixels = pixels[:, pixels.shape[1] // 2]
    elif task == "optical_flow":
        pixels = pixels[0]
    colours = pixels[:3] if len(pixels) in (3, 4) else pixels[:1]  # otherwise not colours
    shown = _to_unit_range(colours, *_normalisation(module, task, transform))
    stream = io.BytesIO()
    picture = torchvision.transforms.functional.to_pil_image(shown.nan_to_num(0).clamp(0, 1))
    picture.save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()


def _to_unit_range(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return pixels (C, H, W) scaled to the range from 0 to 1.

    The normalisation of three colours, or of grey, is undone. If the result is not in that range,
    the pixels were not normalised that way. Such pixels, and one channel of several, are scaled
    from their smallest to their largest value.
    """
    if len(pixels) == len(mean):
        shown = pixels * _per_colour(std) + _per_colour(mean)
        finite = _finite_of(shown)
        if len(finite) and float(finite.min()) > -0.1 and float(finite.max()) < 1.1:
            return shown
    finite = _finite_of(pixels)
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    return (pixels - low) / max(float(high - low), 1e-12)


def _per_colour(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(-1, 1, 1)


def _finite_of(values: Tensor) -> Tensor:
    """Return the finite values, as (n,).

    Most often all are finite, and then no mask is applied.
    """
    where = values.isfinite()
    return values.flatten() if where.all() else values[where]


def _transformed(module: nn.Module, *images: Tensor) -> Tensor:
    """Return the batch that a detection model makes: normalised, resized and padded."""
    device = next(module.parameters()).device
    with torch.inference_mode():
        batch, _ = detection_transform(module)([image.to(device) for image in images])
    return batch.tensors


def _normalisation(
    module: nn.Module, task: str, transform: object
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the mean that a transform subtracts from each colour, and its divisor."""
    if task == "optical_flow":
        return [0.5] * 3, [0.5] * 3
    if task == "detection":
        inside = detection_transform(module)
        return inside.image_mean, inside.image_std
    for step in [transform, *getattr(transform, "transforms", ())]:
        if hasattr(step, "mean") and hasattr(step, "std"):
            return [float(v) for v in step.mean], [float(v) for v in step.std]
    return [0.0] * 3, [1.0] * 3
