"""How a model is called with the pixels of images: most take them as they are, some do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def _as_they_are(pixels: Tensor) -> tuple[Any, ...]:
    return (pixels,)


def _last_two_axes(pixels: Tensor) -> tuple[int, int]:
    return int(pixels.shape[-2]), int(pixels.shape[-1])


@dataclass(frozen=True, slots=True)
class Feed:
    """What stands between the pixels (N, …) of images and a model's forward.

    Attributes:
        arguments_of: what the model is called with.
        size_of: height and width of what the layers see.
        alone: the leading axis of the model's tensors is never that of several images.
    """

    arguments_of: Callable[[Tensor], tuple[Any, ...]] = _as_they_are
    size_of: Callable[[Tensor], tuple[int, int]] = _last_two_axes
    alone: bool = False


PLAIN = Feed()
