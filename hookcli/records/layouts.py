"""Decide from a layer's type and shapes which axes are batch, channels, rows and columns (NCHW).

A layout is the meaning of the axes. If type and shapes do not decide, it is ``unknown`` instead of
a guess, since a picture drawn along the wrong axes would be wrong.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Channels(Enum):
    """Says where the channel axis of a layer's output is, as far as the layer's type shows it."""

    FIRST = "first"
    LAST = "last"
    LIKELY_FIRST = "likely first"  # elementwise, after a layer that is ``FIRST``
    LIKELY_LAST = "likely last"
    SAME = "same"  # elementwise, after a layer that does not show the axis
    WINDOWS = "windows"  # last; the other axes are windows and tokens
    UNKNOWN = "unknown"
    # The name of a functional operation may not show the channel axis.
    BY_INPUT = "by input"  # the output has the axes of an input in the same order
    BY_NOTHING = "by nothing"  # the output may have any axes

    @property
    def of_neighbour(self) -> Channels:
        """The likely member for an elementwise layer that follows a layer with this member."""
        return Channels.LIKELY_FIRST if self is Channels.FIRST else Channels.LIKELY_LAST

    @property
    def is_last(self) -> bool:
        """Whether this is ``LAST`` or ``LIKELY_LAST``."""
        return self in (Channels.LAST, Channels.LIKELY_LAST)

    @property
    def needs_inference(self) -> bool:
        """Whether the layer's type does not show the axis, so that only a forward pass can."""
        return self not in (Channels.FIRST, Channels.LAST, Channels.WINDOWS)


@dataclass(frozen=True, slots=True)
class Layout:
    """Says which axes of a tensor are batch, channels, rows and columns."""

    # ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``, ``NDHWC``, or ``unknown``: N is the
    # batch, C channels, H rows, W columns, D frames, and L tokens or other positions.
    name: str = "unknown"
    channel_axis: int | None = None  # None if unknown
    height: int = 0  # of one feature map; 0 if the tensor has no rows and columns
    width: int = 0
    prefix: int = 0  # the number of tokens before the image's tokens; others may follow them
    inferred: bool = False  # from other tensors, such as an input of the same shape

    @property
    def text(self) -> str:
        """The name of the layout, followed by ``(inferred)`` if hookcli inferred the layout."""
        return f"{self.name} (inferred)" if self.inferred else self.name

    @property
    def is_spatial(self) -> bool:
        """Whether each channel is a map of more than one value, which a picture can show."""
        return self.height * self.width > 1

    @property
    def frame_axis(self) -> int | None:
        """The index of the axis of video frames; None if the tensor has no such axis."""
        return self.name.index("D") if self.name in ("NCDHW", "NDHWC") else None

    @property
    def channels_first(self) -> tuple[int, ...]:
        """The order of axes, for ``permute``, that gives (N, C, …); empty if C is unknown."""
        if self.channel_axis is None:
            return ()
        rest = (axis for axis in range(1, len(self.name)) if axis != self.channel_axis)
        return (0, self.channel_axis, *rest)

    @property
    def image_tokens(self) -> slice:
        """The slice of the token axis (L) that covers the image, without extra tokens.

        The slice takes everything if the tensor is not ``NLC``, or has no known rows and columns.
        """
        if self.name != "NLC" or not self.height:
            return slice(None)
        return slice(self.prefix, self.prefix + self.height * self.width)

    def maps_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a tensor's feature maps: (N, C, H, W), (N, C, D, H, W) or (N, C, L).

        To get this shape, permute the tensor by ``channels_first``, and slice the last axis by
        ``image_tokens``. The layout must have a channel axis and, with NLC, rows and columns.
        """
        count, channels, *rest = (shape[axis] for axis in self.channels_first)
        if self.name == "NLC":
            rest = [self.height, self.width]
        return (count, channels, *rest)


UNKNOWN = Layout()


@dataclass(frozen=True, slots=True)
class Tokens:
    """Says how large a model's image patches are, and how many extra tokens its sequences have."""

    patch: tuple[int, int] | None = None  # height and width in pixels, if a layer shows them
    before: int | None = None  # extra tokens before the patches' tokens; None if unknown
    after: int = 0  # extra tokens after the patches' tokens


NO_TOKENS = Tokens()
INFERRED = "inferred from inputs or parts"
_MOST_BEFORE = 16  # at most this many tokens before the image's tokens, if the number is unknown


@functools.lru_cache(maxsize=4096)
def resolve_layout(
    shape: tuple[int, ...],
    channels: Channels = Channels.UNKNOWN,
    pixels: tuple[int, int] | None = None,
    tokens: Tokens = NO_TOKENS,
) -> Layout:
    """Return the layout of a tensor with this shape; ``UNKNOWN`` if the arguments do not decide it.

    ``channels`` says where the layer's type puts the channel axis, and ``tokens`` describes the
    model's patches and extra tokens. ``pixels`` is the height and width of the network's input, or
    None for a square: feature maps must have its proportions, up to rounding by less than one row
    or column.
    """
    if 0 in shape or channels in (Channels.BY_INPUT, Channels.BY_NOTHING):
        return UNKNOWN
    if channels is Channels.WINDOWS:
        return Layout("NHWC", 3) if len(shape) == 4 else UNKNOWN
    if len(shape) == 2:
        return Layout("NC", 1)
    if len(shape) == 3:
        return _three_axes(shape, channels, pixels, tokens)
    if len(shape) == 4:
        return _four_axes(shape, channels, pixels)
    return _five_axes(shape, channels, pixels) if len(shape) == 5 else UNKNOWN


def recall_layout(
    name: str, shape: tuple[int, ...], pixels: tuple[int, int] | None = None
) -> Layout:
    """Return the layout that a run saved as ``name``; ``UNKNOWN`` if it does not fit ``shape``.

    ``pixels`` is the height and width of the network's input. A run does not save how many extra
    tokens come before the image's tokens: hookcli takes the smallest number with which the other
    tokens form an image with the proportions of ``pixels``.
    """
    channels = Channels.LAST if name.endswith("C") else Channels.FIRST
    layout = resolve_layout(shape, channels, pixels)
    if layout.name != name:
        return UNKNOWN
    for before in range(2, _MOST_BEFORE + 1) if name == "NLC" else ():
        if not layout.is_spatial:
            layout = resolve_layout(shape, channels, pixels, Tokens(before=before))
    return layout


def _three_axes(
    shape: tuple[int, ...], channels: Channels, pixels: tuple[int, int] | None, tokens: Tokens
) -> Layout:
    if channels is Channels.FIRST or (channels is Channels.LIKELY_FIRST and pixels is None):
        return Layout("NCL", 1, 1, shape[2])
    if pixels is None and not channels.is_last:
        return UNKNOWN  # any square number of tokens could be an image
    may_be_first = channels is Channels.LIKELY_FIRST
    if (found := _find_image(shape[1], pixels, tokens)) is not None:
        other = _find_image(shape[2], pixels, tokens) if may_be_first else None
        both = other is not None and not other[2]  # (N, C, L) has no tokens besides the image's
        return UNKNOWN if both else Layout("NLC", 2, *found)
    if may_be_first:
        return Layout("NCL", 1, 1, shape[2])
    return Layout("NLC", 2) if channels.is_last else UNKNOWN


def _find_image(
    length: int, pixels: tuple[int, int] | None, tokens: Tokens
) -> tuple[int, int, int] | None:
    # Returns the image's rows and columns, and how many tokens precede it; None without an image.
    if length in (tokens.before, tokens.after):
        return None  # a head may take only the extra tokens
    if tokens.patch is not None and pixels is not None:
        height, width = (side // patch for side, patch in zip(pixels, tokens.patch, strict=True))
        more = length - height * width
        before = more - tokens.after if tokens.before is None else tokens.before
        if more == 0:
            return height, width, 0  # the model has yet to add the extra tokens, or removed them
        if more == before + tokens.after and 0 <= before <= max(_MOST_BEFORE, tokens.before or 0):
            return height, width, before
        if more > 0:
            return None  # no layer has more image tokens than there are patches
    counts = () if tokens.before is None else ((tokens.before, tokens.after),)
    for before, after in (*counts, (0, 0), *([] if counts else [(1, 0)])):
        height, width = _fold(length - before - after, pixels)
        if height * width > before:
            return height, width, before
    return None


def _four_axes(
    shape: tuple[int, ...], channels: Channels, pixels: tuple[int, int] | None
) -> Layout:
    fits_first = _keeps_proportions(shape[2], shape[3], pixels)
    fits_last = _keeps_proportions(shape[1], shape[2], pixels)
    first = Layout("NCHW", 1, shape[2], shape[3])
    last = Layout("NHWC", 3, shape[1], shape[2]) if fits_last else Layout("NHWC", 3)
    if channels in (Channels.FIRST, Channels.LAST):
        return first if channels is Channels.FIRST else last
    if fits_first == fits_last:  # the shape does not decide, so the neighbour does
        return {Channels.LIKELY_FIRST: first, Channels.LIKELY_LAST: last}.get(channels, UNKNOWN)
    return first if fits_first else last


def _five_axes(
    shape: tuple[int, ...], channels: Channels, pixels: tuple[int, int] | None
) -> Layout:
    first = Layout("NCDHW", 1, shape[3], shape[4])
    last = Layout("NDHWC", 4, shape[2], shape[3])
    fits_first = _keeps_proportions(shape[3], shape[4], pixels)
    fits_last = _keeps_proportions(shape[2], shape[3], pixels)
    is_last = channels is Channels.LAST
    if channels is Channels.FIRST or (fits_first and not fits_last and not is_last):
        return first
    return last if fits_last and (is_last or not fits_first) else UNKNOWN


def _keeps_proportions(height: int, width: int, pixels: tuple[int, int] | None) -> bool:
    """Return whether a map has the proportions of ``pixels`` (square for None), up to rounding."""
    rows, columns = pixels or (1, 1)
    return abs(width - columns * height / rows) < 1 and abs(height - rows * width / columns) < 1


def _fold(tokens: int, pixels: tuple[int, int] | None) -> tuple[int, int]:
    # Returns the rows and columns of an image of this many tokens that has the proportions of
    # ``pixels``, or is square if ``pixels`` is None; (0, 0) if there is none.
    rows, columns = pixels or (1, 1)
    height = round(math.sqrt(tokens * rows / columns)) if tokens > 0 else 0
    width = tokens // height if height > 0 else 0
    fits = width > 0 and height * width == tokens and _keeps_proportions(height, width, pixels)
    return (height, width) if fits else (0, 0)
