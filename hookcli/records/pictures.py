"""The levels that a value becomes where it is drawn: what makes them and what colours them agree on these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """A picture of one image's part of one call, and what its tiles show.

    Attributes:
        image: the image's key.
        call_id: of the call.
        file: relative to the run folder.
        size: width and height of the picture, in pixels.
        places: the first tile's ``left``, ``top``, ``width`` and ``height``, the steps to the next
            column and row, and the number of columns; None for bars.
        channels: of each tile, counted from 0.
        low: smallest value of each tile's channel.
        high: largest value.
        mean: None where the channel is not finite.
        spread: standard deviation; None where the channel is not finite.
        score: how many spreads more each channel fires inside the box of a focus; empty without one.
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
        kind: ``cam`` or ``saliency``.
        call_id: whose Grad-CAM it is; empty for the pixels.
        file: relative to the run folder.
    """

    image: str
    kind: str
    call_id: str
    file: str


LEVELS = 240
MIDDLE = LEVELS // 2  # the level of zero where levels are signed, with as many on either side of it
NOT_FINITE = 240  # the level that stands for NaN and Inf
MOST_BARS = 1024  # the most bars that are drawn of an activation without spatial form
