"""What stands between pixels and a model: its arguments, what its layers see, what a person can see."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import torch

from hookcli.models.zoo.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

ALONE = ("detection", "video", "optical_flow")  # tasks of which one image is a forward
_JPEG_QUALITY = 90


def _as_they_are(pixels: Tensor) -> tuple[object, ...]:
    return (pixels,)


def _last_two_axes(pixels: Tensor) -> tuple[int, int]:
    return int(pixels.shape[-2]), int(pixels.shape[-1])


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """What stands between the pixels (N, …) of images and a model's forward.

    Attributes:
        arguments_of: what the model is called with.
        size_of: height and width of what the layers see.
        alone: the leading axis of the model's tensors is never that of several images.
    """

    arguments_of: Callable[[Tensor], tuple[object, ...]] = _as_they_are
    size_of: Callable[[Tensor], tuple[int, int]] = _last_two_axes
    alone: bool = False


PLAIN = ModelInputs()


class _ImageList(Protocol):
    tensors: Tensor


class DetectionTransform(Protocol):
    """The part of a torchvision detection model that normalises, resizes and pads its images."""

    image_mean: Sequence[float]
    image_std: Sequence[float]
    fixed_size: tuple[int, int] | None
    min_size: tuple[int, ...]
    max_size: int

    def __call__(self, images: list[Tensor], /) -> tuple[_ImageList, object]:
        """The batch that the network is given, and its targets."""


def detection_transform(module: nn.Module) -> DetectionTransform:
    """The transform inside a torchvision detection model."""
    return cast("DetectionTransform", module.transform)


def to_arguments(task: str, pixels: Tensor) -> tuple[object, ...]:
    """What the model is called with, for pixels (N, …) of ``to_pixels``."""
    if task == "detection":
        return (list(pixels),)
    if task == "optical_flow":
        return pixels[:, 0], pixels[:, 1]
    return (pixels,)


def seen_size(module: nn.Module, task: str, pixels: Tensor) -> tuple[int, int]:
    """Height and width of what the layers see: detection models resize and pad what they are given."""
    return _last_two_axes(_transformed(module, *pixels) if task == "detection" else pixels)


def seen_pixels(module: nn.Module, task: str, pixels: Tensor) -> Tensor:
    """(H, W) of the first colour of what the layers see of pixels (1, …): of a clip the first frame, of a pair the first."""
    if task == "detection":
        pixels = _transformed(module, pixels[0]).cpu()
    plane = pixels[0]
    while plane.dim() > 2:
        plane = plane[0]
    return plane


def show_pixels(module: nn.Module, task: str, transform: object, pixels: Tensor) -> bytes:
    """What the layers see of one image, as a JPEG file; of a clip the middle frame, of a pair the first.

    Detection models resize and pad what they are given: the picture has the padding too, so that
    feature maps lie over it.
    """
    if task == "detection":
        pixels = _transformed(module, pixels)[0].cpu()
    elif task == "video":
        pixels = pixels[:, pixels.shape[1] // 2]
    elif task == "optical_flow":
        pixels = pixels[0]
    colours = pixels[:3] if len(pixels) in (3, 4) else pixels[:1]  # else not colours
    shown = _to_unit_range(colours, *_normalisation(module, task, transform))
    stream = io.BytesIO()
    picture = torchvision.transforms.functional.to_pil_image(shown.nan_to_num(0).clamp(0, 1))
    picture.save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()


def _to_unit_range(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Normalised pixels (3, H, W) as colours from 0 to 1; of others the smallest and largest become 0 and 1."""
    if len(pixels) == 3:
        shown = pixels * _per_colour(std) + _per_colour(mean)
        finite = _finite_of(shown)
        if len(finite) and float(finite.min()) > -0.1 and float(finite.max()) < 1.1:
            return shown
    finite = _finite_of(pixels)  # pixels of the user's own
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    return (pixels - low) / max(float(high - low), 1e-12)


def _per_colour(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(-1, 1, 1)


def _finite_of(values: Tensor) -> Tensor:
    """(n,) the values that are finite; most often all are, and then none needs to be picked out."""
    where = values.isfinite()
    return values.flatten() if where.all() else values[where]


def _transformed(module: nn.Module, *images: Tensor) -> Tensor:
    """The batch that a detection model makes of its images: normalised, resized and padded."""
    device = next(module.parameters()).device
    with torch.inference_mode():
        batch, _ = detection_transform(module)([image.to(device) for image in images])
    return batch.tensors


def _normalisation(
    module: nn.Module, task: str, transform: object
) -> tuple[Sequence[float], Sequence[float]]:
    """What a transform took off the colours, and divided them by."""
    if task == "optical_flow":
        return [0.5] * 3, [0.5] * 3
    if task == "detection":
        inside = detection_transform(module)
        return inside.image_mean, inside.image_std
    for step in [transform, *getattr(transform, "transforms", ())]:
        if hasattr(step, "mean") and hasattr(step, "std"):
            return [float(v) for v in step.mean], [float(v) for v in step.std]
    return [0.0] * 3, [1.0] * 3
