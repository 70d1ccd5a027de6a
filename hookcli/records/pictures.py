"""Declare how ``report.json`` describes pictures: tile positions, channel ranges, colour levels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias

from hookcli.outside.documents import LEFT_OUT, AtLeastOne, FileName, Whole, keywords
from hookcli.records.images import Box, Score

if TYPE_CHECKING:
    from collections.abc import Sequence

Size: TypeAlias = tuple[Whole, Whole]
HeatKind: TypeAlias = Annotated[
    str, keywords(enum=["cam", "saliency", "attention", "rollout", "mean", "max", "sum", "l2"])
]


@dataclass(frozen=True, slots=True)
class TileBoxes:
    """The positions, in pixels, of the tiles of a grid; each tile shows one channel.

    Attributes:
        left: the distance of the first tile from the left edge of the picture.
        top: the distance of the first tile from the upper edge of the picture.
        width: the width of a tile.
        height: the height of a tile.
        step_x: the distance between the left edges of neighbouring tiles in a row.
        step_y: the distance between the upper edges of neighbouring tiles in a column.
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
    """A picture without labels that shows a grid's channels at the resolution of their layer.

    The channels are in rows, in the order of the grid's tiles. The palette index of a pixel is the
    level of a value: levels 0 to 254 cover a range of values, and level 255 is NaN or Inf.

    Attributes:
        file: the file of the picture, relative to the run folder.
        size: the height and width of a channel in the picture, in pixels.
        own: the height and width of a channel in the layer. A channel with more than 256 values on
            a side is smaller in the picture: each pixel is the mean of a square of values.
        columns: the number of channels in a row.
        signed: True if the levels cover the range from minus to plus the largest magnitude, with
            zero at level 127; False if they cover the range from the smallest to the largest value.
        range: the smallest and largest value of the layer; null if each channel has its own range.
    """

    file: FileName
    size: Size
    own: Size
    columns: Whole
    signed: bool = False
    range: tuple[float | None, float | None] | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A picture of one call's feature maps for one image, with one channel per tile.

    Attributes:
        image: the image's key, its unique name in the run.
        call_id: the id of the layer's call, such as ``layer1.0.relu#1``.
        file: the file of the picture, relative to the run folder.
        size: the width and height of the picture, in pixels.
        places: the positions of the tiles; null if the picture shows bars instead of tiles.
        channels: the channel of each tile, counted from 0.
        low: the smallest value of each tile's channel.
        high: the largest value of each tile's channel.
        mean: the mean of each tile's channel; null for a channel that contains NaN or Inf.
        spread: the standard deviation of each tile's channel; null for channels with NaN or Inf.
        score: for each tile's channel, the mean inside the box of ``--focus`` minus the mean
            outside the box, in standard deviations of the channel; empty without ``--focus``.
        maps: the channels at the layer's resolution; null for bars, and for a sheet of all layers.
    """

    image: str
    call_id: str
    file: FileName
    size: Size
    places: TileBoxes | None = None
    channels: tuple[Whole, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    spread: tuple[float | None, ...] = ()
    score: tuple[float | None, ...] = ()
    maps: ChannelMaps | None = None

    def __post_init__(self) -> None:
        if self.score and len(self.score) != len(self.channels):
            raise ValueError(f"{len(self.score)} scores of {len(self.channels)} tiles")


def list_focused(grid: Grid) -> list[tuple[int, float | None]]:
    """Return (channel, score) of the channels that ``--focus`` puts first, at most five.

    Channels with a score of 0 or less are left out. A score of None (NaN or Inf) comes first.
    """
    pairs = zip(grid.channels, grid.score, strict=True)
    more = [(channel, score) for channel, score in pairs if score is None or score > 0]
    return sorted(more, key=lambda pair: -math.inf if pair[1] is None else -pair[1])[:5]


CAM_STEPS = 10  # shares of the places that a test of a map blurs, one after the other
RANDOM_MAPS = 9  # beside each map that is tested
CAM_PASSES = 2 + (CAM_STEPS - 1) * (2 * RANDOM_MAPS + 3)  # pictures that a test shows the model


@dataclass(frozen=True, slots=True)
class CamTest:
    """What a score is while the places of a map are blurred, in ten steps, the hottest first.

    Attributes:
        deletion: the scores with 0, 10, … 100 % of the places blurred.
        insertion: the scores with all places blurred except for the hottest 0, 10, … 100 %.
        random: the mean of ``deletion`` for nine maps of random values, of the same size.
        chance: the smallest mean of ``deletion`` up to 50 % of the nine and of their negatives; one
            random map in nineteen has a smaller one.
        randomised: ``deletion`` for the map of the model with the weights of its top layers drawn
            again, scored by the model itself; empty if that map is blank.
    """

    deletion: tuple[float, ...]
    insertion: tuple[float, ...]
    random: tuple[float, ...]
    chance: float
    randomised: tuple[float, ...] = ()

    @property
    def taken(self) -> float | None:
        """The share of the score that blurring the hottest tenth takes; None without a score."""
        return _taken(self.deletion)

    @property
    def at_random(self) -> float | None:
        """The share of the score that blurring a random tenth takes; None without a score."""
        return _taken(self.random)

    @property
    def is_chance(self) -> bool:
        """Whether random maps find what the score depends on about as fast as the map does."""
        return first_half(self.deletion) >= self.chance


def _taken(scores: Sequence[float]) -> float | None:
    return (scores[0] - scores[1]) / scores[0] if scores[0] > 0 else None


def first_half(scores: Sequence[float]) -> float:
    """Return the mean of the first half of a curve of scores, by the trapezoidal rule."""
    return area(scores[: CAM_STEPS // 2 + 1])


def area(scores: Sequence[float]) -> float:
    """Return the mean of a curve of scores, by the trapezoidal rule."""
    return (sum(scores) - (scores[0] + scores[-1]) / 2) / (len(scores) - 1)


@dataclass(frozen=True, slots=True)
class HeatPicture:
    """A picture of a map, such as a Grad-CAM, that was drawn over its image.

    Attributes:
        image: the image's key, its unique name in the run.
        kind: ``cam`` (Grad-CAM), ``saliency``, ``attention``, ``rollout``, or how the channels of a
            layer became one map: ``mean``, ``max``, ``sum`` or ``l2``.
        call_id: the id of the layer's call; empty for a saliency map and for an attention rollout.
        file: the file of the picture, relative to the run folder.
        peak: the place of a Grad-CAM's largest value, as shares of the network's input from its
            left and from its upper edge; null for other maps, and if the Grad-CAM is blank.
        half: the smallest share of the map that holds half of the sum of a Grad-CAM; else null.
        blank: why nothing was drawn of a Grad-CAM; otherwise empty.
        score: the score that a Grad-CAM or a saliency map explains; else null.
        method: how a Grad-CAM was computed, such as ``Grad-CAM++``; empty for other maps.
        test: how well a Grad-CAM shows what the score depends on; null if it was not tested.
        box: left, top, right and bottom of the box whose score a Grad-CAM explains, as shares of
            the network's input; left out if none.
    """

    image: str
    kind: HeatKind
    call_id: str
    file: FileName
    peak: tuple[float, float] | None = None
    half: float | None = None
    blank: str = ""
    score: Score | None = None
    method: str = ""
    test: CamTest | None = None
    box: Box | None = field(default=None, metadata=LEFT_OUT)

    @property
    def is_inside(self) -> bool | None:
        """Whether a Grad-CAM's largest value lies in its box; None without a box or a value."""
        if self.peak is None or self.box is None:
            return None
        (x, y), (left, top, right, bottom) = self.peak, self.box
        return left <= x <= right and top <= y <= bottom


CAM_METHODS = {
    "gradcam": "Grad-CAM",
    "gradcam++": "Grad-CAM++",
    "layercam": "LayerCAM",
    "eigencam": "EigenCAM",
    "hirescam": "HiResCAM",
}


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """A picture that holds the thumbnails of several images, in rows.

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
MIDDLE = LEVELS // 2  # the level of zero if levels are signed: 1 to 119 are below, 121 to 239 above
NOT_FINITE = 240  # the level of NaN and Inf
MAP_LEVELS = 255  # levels of channels at the resolution of their layer; level 255 is NaN and Inf
MOST_SIDE = 256  # pixels on a side of a channel at the resolution of its layer
