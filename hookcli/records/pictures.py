"""Facts about pictures, and the colour levels that their producers and their renderers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from hookcli.outside.documents import AtLeastOne, FileName, Whole, keywords

Size: TypeAlias = tuple[Whole, Whole]
HeatKind: TypeAlias = Annotated[str, keywords(enum=["cam", "saliency", "attention", "rollout"])]


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the tiles of a grid in pixels: the first tile, and the steps between tiles.

    Attributes:
        left: the left side of the first tile.
        top: the upper side of the first tile.
        width: the width of a tile.
        height: the height of a tile.
        step_x: the distance to the next column.
        step_y: the distance to the next row.
        columns: the number of tiles in a row.
    """

    left: Whole
    top: Whole
    width: Whole
    height: Whole
    step_x: Whole
    step_y: Whole
    columns: Whole


@dataclass(frozen=True, slots=True)
class ChannelMaps:
    """The channels of a grid at the resolution of their layer, in one picture without labels.

    The channels are side by side in the order of the grid's tiles. The palette index of a pixel is
    its level, from 0 to 254 over the range of its channel, or 255 where the value is not finite.

    Attributes:
        file: the file of the picture, relative to the run folder.
        size: the height and width of a channel in the picture, in pixels.
        own: the height and width of a channel in the layer. A channel with more than 256 values on
            a side is smaller in the picture: each pixel is the mean of a square of values.
        columns: the number of channels in a row.
        signed: the range is from minus to plus the largest magnitude, instead of from the smallest
            value to the largest; level 127 is zero.
        range: the smallest and largest value of the layer, if all channels share the layer's range;
            null if each channel has its own.
    """

    file: FileName
    size: Size
    own: Size
    columns: Whole
    signed: bool = False
    range: tuple[float | None, float | None] | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A picture of one call for one image, and the content of its tiles.

    Attributes:
        image: the image's key.
        call_id: the id of the call.
        file: the file of the picture, relative to the run folder.
        size: the width and height of the picture, in pixels.
        places: the places of the tiles; null for bars.
        channels: the channel of each tile, counted from 0.
        low: the smallest value of each tile's channel.
        high: the largest value of each tile's channel.
        mean: the mean of each tile's channel; null when the channel is not finite.
        spread: the standard deviation of each tile's channel; null when the channel is not finite.
        score: for each channel, the mean inside the box of ``--focus`` minus the mean outside, in
            standard deviations of the channel; empty without a box.
        maps: the same channels at the resolution of the layer; null for bars and for sheets.
    """

    image: str
    call_id: str
    file: FileName
    size: Size
    places: Places | None = None
    channels: tuple[Whole, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    spread: tuple[float | None, ...] = ()
    score: tuple[float | None, ...] = ()
    maps: ChannelMaps | None = None

    def __post_init__(self) -> None:
        """Raise if there is not one score for each tile."""
        if self.score and len(self.score) != len(self.channels):
            raise ValueError(f"{len(self.score)} scores of {len(self.channels)} tiles")


@dataclass(frozen=True, slots=True)
class HeatPicture:
    """A map that was drawn over an image.

    Attributes:
        image: the image's key.
        kind: the kind of the map.
        call_id: the call of a Grad-CAM or an attention; empty for a saliency map of the pixels and
            for a rollout.
        file: the file of the picture, relative to the run folder.
    """

    image: str
    kind: HeatKind
    call_id: str
    file: FileName


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """A picture that holds the thumbnails of several images, side by side in rows.

    Attributes:
        file: the file of the picture, relative to the run folder.
        columns: the number of thumbnails in a row.
        images: the keys of the images, from the first row to the last.
    """

    file: FileName
    columns: AtLeastOne
    images: tuple[str, ...]


MOST_BARS = 1024  # in one picture; with more values, each bar is the mean of several
LABEL_ROW = 13  # pixels: the height of a line of text above a tile
LEVELS = 240
MIDDLE = LEVELS // 2  # the level of zero of signed levels, with as many levels above as below
NOT_FINITE = 240  # the level of NaN and Inf
MAP_LEVELS = 255  # of channels at the resolution of their layer; level 255 is NaN and Inf
MOST_SIDE = 256  # pixels on a side of such a channel
