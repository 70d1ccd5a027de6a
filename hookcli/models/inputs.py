"""The steps between an image's pixels and a model: the model's arguments, and the layers' input.

hookcli also shows the layers' input to people, as a JPEG file.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hookcli.models.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_JPEG_QUALITY = 90


def last_two_axes(pixels: Tensor) -> tuple[int, int]:
    """Return the height and width of pixels (…, H, W)."""
    return int(pixels.shape[-2]), int(pixels.shape[-1])


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """How the pixels (N, …) of images are passed to a model.

    Attributes:
        arguments_of: returns the arguments of the model's ``forward`` for given pixels.
        size_of: returns the height and width of the layers' input for given pixels.
        alone: True if images must go through the model one at a time: images in a batch would
            affect each other, or the leading axis of the layers' tensors does not count images.
        seed: the seed of the random numbers that a forward pass in training mode draws.
    """

    arguments_of: Callable[[Tensor], tuple[object, ...]] = lambda pixels: (pixels,)
    size_of: Callable[[Tensor], tuple[int, int]] = last_two_axes
    alone: bool = False
    seed: int = 0


PLAIN = ModelInputs()


def draw_pixels(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> bytes:
    """Return pixels (C, H, W) as a JPEG file.

    The file shows the first 3 channels if there are 3 or 4, and only the first channel otherwise.
    ``mean`` and ``std`` are those with which ``pixels`` was normalized.
    """
    colours = pixels[:3] if len(pixels) in (3, 4) else pixels[:1]
    shown = _to_unit_range(colours, mean, std)
    stream = io.BytesIO()
    picture = torchvision.transforms.functional.to_pil_image(shown.nan_to_num(0).clamp(0, 1))
    picture.save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()


def _to_unit_range(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return pixels (C, H, W) scaled to the range from 0 to 1.

    This undoes the normalization with ``mean`` and ``std``. If ``mean`` does not have one value per
    channel, or if the result is far outside the range, the pixels were not normalized in this way.
    Then the smallest value becomes 0, and the largest value becomes 1.
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
    """Return the finite values, flattened to (n,)."""
    where = values.isfinite()
    return values.flatten() if where.all() else values[where]
