"""The meaning of an activation's axes: derived from the module's type and the shapes, not guessed.

A picture of a feature map is right only if the axes are. Where neither the module's type nor the
shapes decide, the layout is ``unknown`` and nothing downstream treats an axis as channels.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Layout:
    """The meaning of the axes of a tensor.

    Attributes:
        name: ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``, ``NDHWC``, or ``unknown``.
        channel_axis: the axis that holds channels; None when it is not known.
        height: the rows of one feature map; 0 when there is no spatial form.
        width: the columns of one feature map; 0 when there is no spatial form.
        prefix: the number of tokens before the spatial ones (the class token).
    """

    name: str = "unknown"
    channel_axis: int | None = None
    height: int = 0
    width: int = 0
    prefix: int = 0

    @property
    def is_spatial(self) -> bool:
        """True when a channel can be drawn as a picture."""
        return self.height * self.width > 1

    @property
    def frame_axis(self) -> int | None:
        """The axis of the frames of a clip; None for anything else."""
        return self.name.index("D") if self.name in ("NCDHW", "NDHWC") else None

    @property
    def channels_first(self) -> tuple[int, ...]:
        """The order of axes that puts channels right after the batch, to transpose a tensor with.

        The transposed tensor is (N, C, …). With NLC it still has the tokens before the spatial
        ones, at ``[..., :prefix]``. Empty without a channel axis.
        """
        if self.channel_axis is None:
            return ()
        rest = (axis for axis in range(1, len(self.name)) if axis != self.channel_axis)
        return (0, self.channel_axis, *rest)

    def maps_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape (N, C, H, W) of the feature maps of a tensor of this layout.

        For a clip it is (N, C, D, H, W), and for a sequence (N, C, L). A tensor that was transposed
        to ``channels_first`` can be reshaped to it, once the tokens of the prefix are cut off.

        Args:
            shape: the shape of the tensor. It has a channel axis and, with NLC, spatial form.
        """
        count, channels, *rest = (shape[axis] for axis in self.channels_first)
        if self.name == "NLC":
            rest = [self.height, self.width]
        return (count, channels, *rest)


UNKNOWN = Layout()


@functools.lru_cache(maxsize=4096)
def resolve_layout(
    shape: tuple[int, ...], channels: str = "unknown", pixels: tuple[int, int] | None = None
) -> Layout:
    """Name the axes of a tensor whose first axis is the batch.

    Args:
        shape: the shape of the tensor, with its leading axis.
        channels: ``LayerInfo.channels`` of the module.
        pixels: the height and width of the network's input, whose proportions feature maps keep (to
            a pixel). None means square.
    """
    if 0 in shape or channels == "mixed":
        return UNKNOWN
    if len(shape) == 2:
        return Layout("NC", 1)
    if len(shape) == 3:
        return _three_axes(shape, channels, pixels)
    if len(shape) == 4:
        return _four_axes(shape, channels, pixels)
    if len(shape) == 5:
        return _five_axes(shape, channels, pixels)
    return UNKNOWN


def recall_layout(
    name: str, shape: tuple[int, ...], pixels: tuple[int, int] | None = None
) -> Layout:
    """Return the layout that ``resolve_layout`` gave this name, or ``UNKNOWN`` if no layout fits.

    The name alone does not tell the size of the feature maps, nor how many tokens come before them.

    Args:
        name: ``Layout.name``.
        shape: the shape that ``resolve_layout`` was given.
        pixels: the height and width that ``resolve_layout`` was given.
    """
    layout = resolve_layout(shape, "last" if name.endswith("C") else "first", pixels)
    return layout if layout.name == name else UNKNOWN


def _three_axes(shape: tuple[int, ...], channels: str, pixels: tuple[int, int] | None) -> Layout:
    """Return the layout of (N, L, C) tokens or of (N, C, L) sequences."""
    if channels == "first" or (channels == "likely first" and pixels is None):
        return Layout("NCL", 1, 1, shape[2])
    if pixels is None and not channels.endswith("last"):
        return UNKNOWN  # not known to come from an image, and any square number could be folded
    for prefix in (0, 1):
        height, width = _fold(shape[1] - prefix, pixels)
        if height * width > prefix:
            both = channels == "likely first" and math.prod(_fold(shape[2], pixels)) > 0
            return UNKNOWN if both else Layout("NLC", 2, height, width, prefix)
    if channels == "likely first":
        return Layout("NCL", 1, 1, shape[2])
    return Layout("NLC", 2) if channels.endswith("last") else UNKNOWN


def _four_axes(shape: tuple[int, ...], channels: str, pixels: tuple[int, int] | None) -> Layout:
    """Return the layout of (N, C, H, W) or of (N, H, W, C)."""
    first = Layout("NCHW", 1, shape[2], shape[3])
    last = Layout("NHWC", 3, shape[1], shape[2])
    fits_first = _keeps_proportions(shape[2], shape[3], pixels)
    fits_last = _keeps_proportions(shape[1], shape[2], pixels)
    if channels == "first":
        return first
    if channels == "last":
        return last if fits_last else Layout("NHWC", 3)
    if fits_first == fits_last:  # the shape does not decide, so the neighbour does
        last = last if fits_last else Layout("NHWC", 3)
        return {"likely first": first, "likely last": last}.get(channels, UNKNOWN)
    if fits_first:
        return first
    return last if fits_last else UNKNOWN


def _five_axes(shape: tuple[int, ...], channels: str, pixels: tuple[int, int] | None) -> Layout:
    """Return the layout of (N, C, D, H, W) or of (N, D, H, W, C)."""
    first = Layout("NCDHW", 1, shape[3], shape[4])
    last = Layout("NDHWC", 4, shape[2], shape[3])
    fits_first = _keeps_proportions(shape[3], shape[4], pixels)
    fits_last = _keeps_proportions(shape[2], shape[3], pixels)
    if channels == "first" or (channels != "last" and fits_first and not fits_last):
        return first
    if fits_last and (channels == "last" or not fits_first):
        return last
    return UNKNOWN


def _keeps_proportions(height: int, width: int, pixels: tuple[int, int] | None) -> bool:
    """Return whether (height, width) is the pixels' shape made smaller, rounded up or down."""
    rows, columns = pixels or (1, 1)
    return abs(width - columns * height / rows) < 1 and abs(height - rows * width / columns) < 1


def _fold(tokens: int, pixels: tuple[int, int] | None) -> tuple[int, int]:
    """Return the height and width of ``tokens`` in the pixels' proportions; (0, 0) if none fit."""
    rows, columns = pixels or (1, 1)
    height = round(math.sqrt(tokens * rows / columns)) if tokens > 0 else 0
    if height > 0 and tokens % height == 0:
        width = tokens // height
        if _keeps_proportions(height, width, pixels):
            return height, width
    return 0, 0
