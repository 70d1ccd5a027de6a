"""The meaning of an activation's axes: derived from the module's type and the shapes, not guessed.

A picture of a feature map is right only if the axes are. If neither the module's type nor the
shapes decide, the layout is ``unknown``, and no later step treats an axis as channels.
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
    """The position of the channel axis in a layer's output, as far as its type shows it.

    An elementwise layer has the axes of its input. The type of its neighbour makes it
    ``LIKELY_FIRST`` or ``LIKELY_LAST``; without such a neighbour it is ``SAME``. ``WINDOWS`` have
    channels last, but their other axes are no longer the image's.

    If neither the name nor the shape of a functional operation shows its axes, its inputs may:
    ``BY_VALUE`` (it is elementwise), ``BY_AXES`` (it keeps the order of the axes, but not their
    lengths), or ``BY_SHAPE`` (it has the axes of an input of the same shape). With ``BY_NOTHING``,
    its axes are not those of any input.
    """

    FIRST = "first"
    LAST = "last"
    LIKELY_FIRST = "likely first"
    LIKELY_LAST = "likely last"
    SAME = "same"
    WINDOWS = "windows"
    UNKNOWN = "unknown"
    BY_VALUE = "by value"
    BY_AXES = "by axes"
    BY_SHAPE = "by shape"
    BY_NOTHING = "by nothing"

    @property
    def of_neighbour(self) -> Channels:
        """The likely position for an elementwise neighbour of a ``FIRST`` or ``LAST`` layer."""
        return Channels.LIKELY_FIRST if self is Channels.FIRST else Channels.LIKELY_LAST

    @property
    def is_last(self) -> bool:
        """Whether channels are last, or likely last."""
        return self in (Channels.LAST, Channels.LIKELY_LAST)

    @property
    def is_elementwise(self) -> bool:
        """Whether the layer is elementwise, so that its output has the layout of its input."""
        return self in _ELEMENTWISE

    @property
    def follows_input(self) -> bool:
        """Whether this is an operation whose layout only its inputs can show."""
        return self in _BY_INPUT

    @property
    def needs_inference(self) -> bool:
        """Whether the layer's type leaves the position of the channels open, or only likely."""
        return self.is_elementwise or self in _UNTOLD


_ELEMENTWISE = (Channels.SAME, Channels.BY_VALUE, Channels.LIKELY_FIRST, Channels.LIKELY_LAST)
_BY_INPUT = (Channels.BY_VALUE, Channels.BY_AXES, Channels.BY_SHAPE, Channels.BY_NOTHING)
_UNTOLD = (Channels.UNKNOWN, Channels.BY_AXES, Channels.BY_SHAPE)


@dataclass(frozen=True, slots=True)
class Layout:
    """The meaning of the axes of a tensor.

    Attributes:
        name: ``NCHW``, ``NHWC``, ``NLC``, ``NCL``, ``NC``, ``NCDHW``, ``NDHWC``, or ``unknown``.
        channel_axis: the axis of the channels; None if it is unknown.
        height: the rows of one feature map; without rows and columns, height and width are 0.
        prefix: the number of tokens before the spatial ones: class, distillation and register
            tokens. With NLC, others may follow the spatial ones, such as detection tokens.
        inferred: the layout follows neither from the module's type nor from the shape, but from
            another tensor of the same shape that the module took or that one of its parts returned.
    """

    name: str = "unknown"
    channel_axis: int | None = None
    height: int = 0
    width: int = 0
    prefix: int = 0
    inferred: bool = False

    @property
    def text(self) -> str:
        """The name, with a note if it was inferred."""
        return f"{self.name} (inferred)" if self.inferred else self.name

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
        """The order of axes that puts channels right after the batch, for a transposition.

        The transposed tensor is (N, C, …). With NLC it still has the tokens without a place on the
        image; ``image_tokens`` cuts them off. The order is empty without a channel axis.
        """
        if self.channel_axis is None:
            return ()
        rest = (axis for axis in range(1, len(self.name)) if axis != self.channel_axis)
        return (0, self.channel_axis, *rest)

    @property
    def image_tokens(self) -> slice:
        """The tokens that have a place on the image, among those of an NLC tensor.

        For any other tensor it is the whole axis.
        """
        if self.name != "NLC" or not self.height:
            return slice(None)
        return slice(self.prefix, self.prefix + self.height * self.width)

    def maps_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape (N, C, H, W) of the feature maps of a tensor of this layout.

        For a clip it is (N, C, D, H, W), and for a sequence (N, C, L). To reshape a tensor to it,
        first transpose it to ``channels_first``, and cut it down to ``image_tokens``. The tensor
        must have a channel axis and, with NLC, rows and columns.
        """
        count, channels, *rest = (shape[axis] for axis in self.channels_first)
        if self.name == "NLC":
            rest = [self.height, self.width]
        return (count, channels, *rest)


UNKNOWN = Layout()


@dataclass(frozen=True, slots=True)
class Tokens:
    """A model's facts about its sequences of tokens.

    Attributes:
        patch: the height and width, in pixels, of the patch behind each token; None if no layer
            shows it.
        before: the number of tokens before the patches' tokens; None if the model does not say.
        after: the number of tokens after them.
    """

    patch: tuple[int, int] | None = None
    before: int | None = None
    after: int = 0


NO_TOKENS = Tokens()
INFERRED = "inferred from inputs or parts"
_MOST_BEFORE = 16  # the most tokens before the patches' tokens in a model that does not say


@functools.lru_cache(maxsize=4096)
def resolve_layout(
    shape: tuple[int, ...],
    channels: Channels = Channels.UNKNOWN,
    pixels: tuple[int, int] | None = None,
    tokens: Tokens = NO_TOKENS,
) -> Layout:
    """Name the axes of a tensor whose first axis is the batch.

    Feature maps keep the proportions (to a pixel) of ``pixels``, the height and width of the
    network's input; None means square. The other arguments are fields of ``LayerInfo``.
    """
    if 0 in shape or channels.follows_input:
        return UNKNOWN
    if channels is Channels.WINDOWS:
        return Layout("NHWC", 3) if len(shape) == 4 else UNKNOWN
    if len(shape) == 2:
        return Layout("NC", 1)
    if len(shape) == 3:
        return _three_axes(shape, channels, pixels, tokens)
    if len(shape) == 4:
        return _four_axes(shape, channels, pixels)
    if len(shape) == 5:
        return _five_axes(shape, channels, pixels)
    return UNKNOWN


def recall_layout(
    name: str, shape: tuple[int, ...], pixels: tuple[int, int] | None = None
) -> Layout:
    """Return the layout that ``resolve_layout`` gave this name, or ``UNKNOWN`` if no layout fits.

    The name alone shows neither the size of the feature maps nor the number of tokens before them.
    This takes the smallest number of such tokens that leaves an image.
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
    """Return the layout of (N, L, C) tokens or of (N, C, L) sequences."""
    if channels is Channels.FIRST or (channels is Channels.LIKELY_FIRST and pixels is None):
        return Layout("NCL", 1, 1, shape[2])
    if pixels is None and not channels.is_last:
        return UNKNOWN  # perhaps not from an image, and any square number could be folded
    may_be_first = channels is Channels.LIKELY_FIRST
    if (found := _find_image(shape[1], pixels, tokens)) is not None:
        other = _find_image(shape[2], pixels, tokens) if may_be_first else None
        both = other is not None and not other[2]  # (N, C, L) has no tokens but the image's
        return UNKNOWN if both else Layout("NLC", 2, *found)
    if may_be_first:
        return Layout("NCL", 1, 1, shape[2])
    return Layout("NLC", 2) if channels.is_last else UNKNOWN


def _find_image(
    length: int, pixels: tuple[int, int] | None, tokens: Tokens
) -> tuple[int, int, int] | None:
    """Return height, width and prefix of the image in a sequence of tokens; None if it has none."""
    if length in (tokens.before, tokens.after):
        return None  # a head that takes only the other tokens
    if tokens.patch is not None and pixels is not None:
        height, width = (side // patch for side, patch in zip(pixels, tokens.patch, strict=True))
        more = length - height * width
        before = more - tokens.after if tokens.before is None else tokens.before
        if more == 0:
            return height, width, 0  # the other tokens are not there yet, or no longer
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
    """Return the layout of (N, C, H, W) or of (N, H, W, C)."""
    first = Layout("NCHW", 1, shape[2], shape[3])
    last = Layout("NHWC", 3, shape[1], shape[2])
    fits_first = _keeps_proportions(shape[2], shape[3], pixels)
    fits_last = _keeps_proportions(shape[1], shape[2], pixels)
    if channels is Channels.FIRST:
        return first
    if channels is Channels.LAST:
        return last if fits_last else Layout("NHWC", 3)
    if fits_first == fits_last:  # the shape does not decide, so the neighbour does
        last = last if fits_last else Layout("NHWC", 3)
        return {Channels.LIKELY_FIRST: first, Channels.LIKELY_LAST: last}.get(channels, UNKNOWN)
    if fits_first:
        return first
    return last if fits_last else UNKNOWN


def _five_axes(
    shape: tuple[int, ...], channels: Channels, pixels: tuple[int, int] | None
) -> Layout:
    """Return the layout of (N, C, D, H, W) or of (N, D, H, W, C)."""
    first = Layout("NCDHW", 1, shape[3], shape[4])
    last = Layout("NDHWC", 4, shape[2], shape[3])
    fits_first = _keeps_proportions(shape[3], shape[4], pixels)
    fits_last = _keeps_proportions(shape[2], shape[3], pixels)
    is_last = channels is Channels.LAST
    if channels is Channels.FIRST or (fits_first and not fits_last and not is_last):
        return first
    if fits_last and (is_last or not fits_first):
        return last
    return UNKNOWN


def _keeps_proportions(height: int, width: int, pixels: tuple[int, int] | None) -> bool:
    """Return whether (height, width) is the pixels' shape scaled down, rounded up or down."""
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
