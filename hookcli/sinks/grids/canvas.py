"""A picture in the making: palette indices, their colours, and text written among them.

The palette carries the colour map, so a colour map costs nothing: 240 levels, one colour for values
that are not finite, and a ramp for text.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hookcli.config import EMBER
from hookcli.errors import RequestError
from hookcli.feature_maps import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Pixels: TypeAlias = NDArray[np.uint8]

BACKGROUND, _TEXT = 241, 255
_INK = ((22, 22, 28), (236, 236, 240))
_NOT_FINITE = (0, 229, 255)
_EMBER = (
    (4, 5, 16),
    (38, 22, 84),
    (112, 26, 110),
    (196, 48, 88),
    (246, 112, 48),
    (253, 190, 82),
    (255, 250, 214),
)
MARGIN = 10
_TITLE_SIZE, NOTE_SIZE, LABEL_SIZE = 14, 12, 10
_TITLE_ROW = 20


def load_palette(colormap: str) -> list[int]:
    """256 RGB triples for a colour map; ``ember`` is built in, other names are matplotlib's.

    Raises:
        RequestError: matplotlib has no such map.
    """
    if colormap == EMBER:
        at = np.linspace(0, 1, len(_EMBER))
        levels = np.linspace(0, 1, LEVELS)
        anchors = np.array(_EMBER, dtype=float)
        colours = np.stack([np.interp(levels, at, anchors[:, channel]) for channel in range(3)], 1)
    else:
        colours = _matplotlib_colours(colormap)
    ramp = np.linspace(_INK[0], _INK[1], _TEXT - BACKGROUND + 1)
    table = np.concatenate([colours, [_NOT_FINITE], ramp]).round().astype(np.uint8)
    return [int(value) for value in table.ravel()]


def to_image(canvas: Pixels, palette: list[int]) -> Image.Image:
    """The picture, ready to be saved as a palette PNG."""
    image = Image.fromarray(canvas, "P")
    image.putpalette(palette)
    return image


def _matplotlib_colours(name: str) -> NDArray[np.float64]:
    from matplotlib import colormaps  # 0.2 s: only when another map is asked for

    if name not in colormaps:
        raise RequestError(
            f"there is no colour map {name!r}",
            "ember, or any of matplotlib's: viridis, gray, coolwarm",
        )
    colours: NDArray[np.float64] = colormaps[name](np.linspace(0, 1, LEVELS))[:, :3] * 255
    return colours


def heading_height(heading: Sequence[str]) -> int:
    """Where the picture begins below its heading, in pixels."""
    return MARGIN + _TITLE_ROW * len(heading) + 4


def new_canvas(heading: Sequence[str], width: int, height: int) -> Pixels:
    """An empty picture with the heading written, wide enough for it."""
    sizes = [_TITLE_SIZE, *[NOTE_SIZE] * (len(heading) - 1)]
    text = [draw_text(line, size) for line, size in zip(heading, sizes, strict=True)]
    inner = max([width, *(mask.shape[1] for mask in text)])
    shape = (heading_height(heading) + height + MARGIN, inner + 2 * MARGIN)
    canvas = np.full(shape, BACKGROUND, np.uint8)
    for index, (line, size) in enumerate(zip(heading, sizes, strict=True)):
        write_text(canvas, line, (MARGIN, MARGIN + index * _TITLE_ROW), size, inner)
    return canvas


def write_text(canvas: Pixels, text: str, at: tuple[int, int], size: int, width: int) -> None:
    """Write one line with its upper left corner at ``at``, (x, y), cut at ``width`` pixels."""
    x, y = at
    mask = draw_text(text, size)[:, :width]
    area = canvas[y : y + mask.shape[0], x : x + mask.shape[1]]
    np.maximum(area, mask[: area.shape[0], : area.shape[1]], out=area)


@functools.lru_cache(maxsize=4096)
def draw_text(text: str, size: int) -> Pixels:
    """Palette indices of one line of text."""
    font = _font(size)
    left, _, right, bottom = font.getbbox(text or " ")
    image = Image.new("L", (max(1, round(right - left) + 1), max(1, round(bottom) + 1)))
    ImageDraw.Draw(image).text((-left, 0), text, fill=255, font=font)
    ink = np.asarray(image, np.uint16)
    indices: Pixels = (BACKGROUND + ink * (_TEXT - BACKGROUND) // 255).astype(np.uint8)
    return indices


@functools.lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
