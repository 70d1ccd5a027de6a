"""Facts about pictures, and the colour levels that those who make and who draw them agree on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """A picture of one call for one image, and what its tiles show.

    Attributes:
        image: the image's key.
        call_id: the id of the call.
        file: the file of the picture, relative to the run folder.
        size: the width and height of the picture, in pixels.
        places: the ``left``, ``top``, ``width`` and ``height`` of the first tile, the steps to the
            next column and row, and the number of columns; None for bars.
        channels: the channel of each tile, counted from 0.
        low: the smallest value of each tile's channel.
        high: the largest value of each tile's channel.
        mean: the mean of each tile's channel; None when the channel is not finite.
        spread: the standard deviation of each tile's channel; None when the channel is not finite.
        score: by how many standard deviations each channel fires more inside the box of ``--focus``
            than outside; empty without a box.
    """

    image: str
    call_id: str
    file: str
    size: tuple[int, int]
    places: dict[str, int] | None = None
    channels: tuple[int, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    spread: tuple[float | None, ...] = ()
    score: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class HeatPicture:
    """A map that was drawn over an image.

    Attributes:
        image: the image's key.
        kind: ``cam``, ``saliency``, ``attention`` or ``rollout``.
        call_id: the call of a Grad-CAM or an attention; empty for a saliency map of the pixels and
            for a rollout.
        file: the file of the picture, relative to the run folder.
    """

    image: str
    kind: str
    call_id: str
    file: str


MOST_BARS = 1024  # in one picture; with more values, each bar is the mean of several
LABEL_ROW = 13  # pixels: the height of a line of text above a tile
LEVELS = 240
MIDDLE = LEVELS // 2  # the level of zero of signed levels, with as many levels above as below
NOT_FINITE = 240  # the level of NaN and Inf
