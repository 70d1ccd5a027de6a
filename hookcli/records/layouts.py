"""What the axes of an activation mean, told from the module's type and the shapes, never guessed.

A picture of a feature map is right only if the axes are. Where neither the module's type nor the
shapes decide, the layout is ``unknown`` and nothing downstream treats an axis as channels.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """What the axes of a tensor mean.

    Attributes:
        name: ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``, ``NDHWC``, or ``unknown``.
        channel_axis: which axis holds channels; None when that cannot be told.
        height: rows of one feature map; 0 when there is no spatial form.
        width: columns of one feature map; 0 when there is no spatial form.
        prefix: how many tokens stand before the spatial ones (the class token).
    """

    name: str = "unknown"
    channel_axis: int | None = None
    height: int = 0
    width: int = 0
    prefix: int = 0

    @property
    def is_spatial(self) -> bool:
        """Whether a channel can be drawn as a picture."""
        return self.height * self.width > 1

    @property
    def frame_axis(self) -> int | None:
        """Which axis holds the frames of a clip; None where there are none."""
        return self.name.index("D") if "D" in self.name else None

    @property
    def channels_last(self) -> bool:
        """Whether the last axis holds the channels."""
        return self.name.endswith("C")


UNKNOWN = Layout()


@functools.lru_cache(maxsize=4096)
def resolve_layout(
    shape: tuple[int, ...], channels: str = "unknown", pixels: tuple[int, int] | None = None
) -> Layout:
    """Name the axes of a tensor whose first axis is the batch.

    Args:
        shape: of the tensor, with its leading axis.
        channels: what the module's type says, as in ``LayerInfo.channels``.
        pixels: height and width of what the network was given; feature maps keep its proportions
            (to a pixel). None means square.
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
    """The layout that got this name, with what the name does not say: the form of feature maps, and tokens before them.

    Args:
        name: as in ``Layout.name``.
        shape: as ``resolve_layout`` was given it.
        pixels: the same.
    """
    layout = resolve_layout(shape, "last" if name.endswith("C") else "first", pixels)
    return layout if layout.name == name else UNKNOWN


def _three_axes(shape: tuple[int, ...], channels: str, pixels: tuple[int, int] | None) -> Layout:
    """(N, L, C) tokens or (N, C, L) sequences."""
    if channels == "first" or (channels == "likely first" and pixels is None):
        return Layout("NCL", 1, 1, shape[2])
    if pixels is None and not channels.endswith("last"):
        return UNKNOWN  # not known to come from an image: any square number would fold
    for prefix in (0, 1):
        height, width = _fold(shape[1] - prefix, pixels)
        if height * width > prefix:
            both = channels == "likely first" and math.prod(_fold(shape[2], pixels)) > 0
            return UNKNOWN if both else Layout("NLC", 2, height, width, prefix)
    if channels == "likely first":
        return Layout("NCL", 1, 1, shape[2])
    return Layout("NLC", 2) if channels.endswith("last") else UNKNOWN


def _four_axes(shape: tuple[int, ...], channels: str, pixels: tuple[int, int] | None) -> Layout:
    """(N, C, H, W) or (N, H, W, C)."""
    first = Layout("NCHW", 1, shape[2], shape[3])
    last = Layout("NHWC", 3, shape[1], shape[2])
    fits_first = _keeps_proportions(shape[2], shape[3], pixels)
    fits_last = _keeps_proportions(shape[1], shape[2], pixels)
    if channels == "first":
        return first
    if channels == "last":
        return last if fits_last else Layout("NHWC", 3)
    if fits_first == fits_last:  # the shape does not decide, the neighbour does
        last = last if fits_last else Layout("NHWC", 3)
        return {"likely first": first, "likely last": last}.get(channels, UNKNOWN)
    if fits_first:
        return first
    return last if fits_last else UNKNOWN


def _five_axes(shape: tuple[int, ...], channels: str, pixels: tuple[int, int] | None) -> Layout:
    """(N, C, D, H, W) or (N, D, H, W, C)."""
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
    """Whether (height, width) is the pixels' shape made smaller, rounding up or down."""
    rows, columns = pixels or (1, 1)
    return abs(width - columns * height / rows) < 1 and abs(height - rows * width / columns) < 1


def _fold(tokens: int, pixels: tuple[int, int] | None) -> tuple[int, int]:
    """Height and width of ``tokens`` laid out in the pixels' proportions; (0, 0) if they do not fit."""
    rows, columns = pixels or (1, 1)
    height = round(math.sqrt(tokens * rows / columns)) if tokens > 0 else 0
    if height > 0 and tokens % height == 0:
        width = tokens // height
        if _keeps_proportions(height, width, pixels):
            return height, width
    return 0, 0
