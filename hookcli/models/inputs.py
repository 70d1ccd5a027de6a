"""What stands between pixels and a model: its arguments, what its layers see, what a person can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

import io
from typing import TYPE_CHECKING

import torch

from hookcli.models.zoo.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn


def _as_they_are(pixels: Tensor) -> tuple[Any, ...]:
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

    arguments_of: Callable[[Tensor], tuple[Any, ...]] = _as_they_are
    size_of: Callable[[Tensor], tuple[int, int]] = _last_two_axes
    alone: bool = False


PLAIN = ModelInputs()


ALONE = ("detection", "video", "optical_flow")  # tasks of which one image is a forward


def to_arguments(task: str, pixels: Tensor) -> tuple[Any, ...]:
    """What the model is called with, for pixels (N, …) of ``to_pixels``."""
    if task == "detection":
        return (list(pixels),)
    if task == "optical_flow":
        return pixels[:, 0], pixels[:, 1]
    return (pixels,)


def seen_size(module: nn.Module, task: str, pixels: Tensor) -> tuple[int, int]:
    """Height and width of what the layers see: detection models resize and pad what they are given."""
    if task == "detection":
        pixels = _transformed(module, *pixels)
    return int(pixels.shape[-2]), int(pixels.shape[-1])


def seen_pixels(module: nn.Module, task: str, pixels: Tensor) -> Tensor:
    """(H, W) of the first colour of what the layers see of pixels (1, …): of a clip the first frame, of a pair the first."""
    if task == "detection":
        pixels = _transformed(module, pixels[0]).cpu()
    plane = pixels[0]
    while plane.dim() > 2:
        plane = plane[0]
    return plane


def show_pixels(module: nn.Module, task: str, transform: Any, pixels: Tensor) -> bytes:
    """What the layers see of one image, as a JPEG file; of a clip the middle frame, of a pair the first.

    Detection models resize and pad what they are given: the picture has the padding too, so that
    feature maps lie over it.
    """
    if task == "detection":
        pixels = _transformed(module, pixels)[0].cpu()
        transform = module.transform
    if task == "video":
        pixels = pixels[:, pixels.shape[1] // 2]
    pixels = pixels[0] if task == "optical_flow" else pixels
    pixels = pixels[:3] if len(pixels) in (3, 4) else pixels[:1]  # else not colours
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in _normalisation(task, transform))
    shown = pixels * std + mean
    finite = _finite_of(shown)
    usual = len(finite) and float(finite.min()) > -0.1 and float(finite.max()) < 1.1
    if len(pixels) == 1 or not usual:  # pixels of the user's own
        finite = _finite_of(pixels)
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        shown = (pixels - low) / max(float(high - low), 1e-12)
    stream = io.BytesIO()
    torchvision.transforms.functional.to_pil_image(shown.nan_to_num(0).clamp(0, 1)).save(
        stream, "JPEG", quality=90
    )
    return stream.getvalue()


def _finite_of(values: Tensor) -> Tensor:
    """(n,) the values that are finite; most often all are, and then none needs to be picked out."""
    where = values.isfinite()
    return values.flatten() if where.all() else values[where]


def _transformed(module: nn.Module, *images: Tensor) -> Tensor:
    """The batch that a detection model makes of its images: normalised, resized and padded."""
    device = next(module.parameters()).device
    with torch.inference_mode():
        batch, _ = module.transform([image.to(device) for image in images])  # type: ignore[operator]
    made: Tensor = batch.tensors
    return made


def _normalisation(task: str, transform: Any) -> tuple[Sequence[float], Sequence[float]]:
    """What a transform took off the colours, and divided them by."""
    if task == "optical_flow":
        return [0.5] * 3, [0.5] * 3
    if task == "detection":
        return transform.image_mean, transform.image_std
    for part in [transform, *getattr(transform, "transforms", ())]:
        if hasattr(part, "mean") and hasattr(part, "std"):
            return [float(v) for v in part.mean], [float(v) for v in part.std]
    return [0.0] * 3, [1.0] * 3
