"""Tiles and bars as labelled pictures: one array of palette indices each, drawn in one go.

The palette carries the colour map, so a colour map costs nothing: 240 levels, one colour for values
that are not finite, and a ramp for text. Nothing here writes files.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hookcli.errors import RequestError
from hookcli.feature_maps import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Pixels: TypeAlias = NDArray[np.uint8]

_BACKGROUND, _TEXT = 241, 255
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
_MARGIN, _GAP = 10, 4
_TITLE_SIZE, _NOTE_SIZE, _LABEL_SIZE = 14, 12, 10
_TITLE_ROW, _LABEL_ROW = 20, 13
_BAR_HEIGHT, _BARS_A_ROW = 72, 256


def load_palette(colormap: str) -> list[int]:
    """256 RGB triples for a colour map; ``ember`` is built in, other names are matplotlib's.

    Raises:
        RequestError: matplotlib has no such map.
    """
    if colormap == "ember":
        at = np.linspace(0, 1, len(_EMBER))
        levels = np.linspace(0, 1, LEVELS)
        anchors = np.array(_EMBER, dtype=float)
        colours = np.stack([np.interp(levels, at, anchors[:, channel]) for channel in range(3)], 1)
    else:
        colours = _matplotlib_colours(colormap)
    ramp = np.linspace(_INK[0], _INK[1], _TEXT - _BACKGROUND + 1)
    table = np.concatenate([colours, [_NOT_FINITE], ramp]).round().astype(np.uint8)
    return [int(value) for value in table.ravel()]


def draw_grid(
    tiles: Pixels, labels: Sequence[str], heading: Sequence[str], tile_size: int
) -> Pixels:
    """Tiles (K, h, w) in rows, each under its label, below the heading's lines."""
    cells = enlarge(tiles, tile_size)
    count, height, width = cells.shape
    widest = max([width, *(_text(label, _LABEL_SIZE).shape[1] for label in labels)])
    row_height, column_width = height + _LABEL_ROW + _GAP, widest + _GAP
    columns = _columns(count, row_height, column_width)
    rows = -(-count // columns)
    canvas = _canvas(heading, columns * column_width - _GAP, rows * row_height)
    top = _heading_height(heading)
    for index, (cell, label) in enumerate(zip(cells, labels, strict=True)):
        y = top + index // columns * row_height
        x = _MARGIN + index % columns * column_width
        _write(canvas, label, x, y, _LABEL_SIZE, column_width)
        canvas[y + _LABEL_ROW : y + _LABEL_ROW + height, x : x + width] = cell
    return canvas


def draw_bars(values: NDArray[np.float32], heading: Sequence[str]) -> Pixels:
    """Values as bars from a zero line, up and down on one scale, 256 a row."""
    finite = np.isfinite(values)
    low = min(0.0, float(values[finite].min(initial=0)))
    span = max(0.0, float(values[finite].max(initial=0))) - low or 1.0
    thick = max(1, min(8, 512 // max(1, len(values))))
    rows = -(-len(values) // _BARS_A_ROW)
    width = min(len(values), _BARS_A_ROW) * max(2, thick)
    canvas = _canvas(heading, width, rows * (_BAR_HEIGHT + _LABEL_ROW + _GAP))
    for row in range(rows):
        y = _heading_height(heading) + row * (_BAR_HEIGHT + _LABEL_ROW + _GAP)
        part = values[row * _BARS_A_ROW : (row + 1) * _BARS_A_ROW]
        _write(canvas, f"from {row * _BARS_A_ROW}", _MARGIN, y, _LABEL_SIZE, width)
        strip = _bar_strip(part, low, span, max(2, thick))
        canvas[
            y + _LABEL_ROW : y + _LABEL_ROW + _BAR_HEIGHT, _MARGIN : _MARGIN + strip.shape[1]
        ] = strip
    return canvas


def draw_sheet(
    rows: Sequence[tuple[str, Pixels, Sequence[str]]], heading: Sequence[str], tile_size: int
) -> Pixels:
    """One row a layer: its name, then tiles (K, h, w) with their labels."""
    cells = [enlarge(tiles, tile_size) for _, tiles, _ in rows]
    heights = [cell.shape[1] + 2 * _LABEL_ROW + _GAP for cell in cells]
    widths = [len(cell) * (cell.shape[2] + _GAP) for cell in cells]
    canvas = _canvas(heading, max(widths, default=0), sum(heights))
    y = _heading_height(heading)
    for (name, _, labels), cell, height in zip(rows, cells, heights, strict=True):
        _write(canvas, name, _MARGIN, y, _NOTE_SIZE, canvas.shape[1] - 2 * _MARGIN)
        for index, (picture, label) in enumerate(zip(cell, labels, strict=True)):
            x = _MARGIN + index * (cell.shape[2] + _GAP)
            room = cell.shape[2] if len(cell) > 1 else canvas.shape[1] - 2 * _MARGIN
            _write(canvas, label, x, y + _LABEL_ROW + 2, _LABEL_SIZE, room)
            top = y + 2 * _LABEL_ROW
            canvas[top : top + cell.shape[1], x : x + cell.shape[2]] = picture
        y += height
    return canvas


def draw_strip(values: NDArray[np.float32], height: int) -> Pixels:
    """The values as columns of colour on one scale: at most 512 of them, the strip at least 256 wide."""
    step = max(1, -(-len(values) // 512))
    shown = values[::step]
    finite = np.isfinite(shown)
    low, high = shown[finite].min(initial=0), shown[finite].max(initial=0)
    shares = (np.where(finite, shown, low) - low) / ((high - low) or 1)
    levels = np.where(finite, (shares * (LEVELS - 1)).round(), LEVELS).astype(np.uint8)
    columns = levels.repeat(-(-256 // max(1, len(levels))))
    return np.broadcast_to(columns, (height // 3, len(columns)))


def enlarge(tiles: Pixels, tile_size: int) -> Pixels:
    """Each pixel of (K, h, w) as a square, by the largest whole factor that fits ``tile_size``."""
    factor = max(1, tile_size // max(1, *tiles.shape[1:]))
    return tiles.repeat(factor, 1).repeat(factor, 2)


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


def _columns(count: int, row_height: int, column_width: int) -> int:
    """The number of columns near a square picture that leaves the fewest places empty."""
    square = (count * row_height / column_width) ** 0.5
    near = range(max(1, round(square * 0.75)), min(count, round(square * 1.4)) + 1)
    return min(near, key=lambda columns: (-count % columns, abs(columns - square)), default=1)


def _heading_height(heading: Sequence[str]) -> int:
    return _MARGIN + _TITLE_ROW * len(heading) + 4


def _canvas(heading: Sequence[str], width: int, height: int) -> Pixels:
    """An empty picture with the heading written, wide enough for it."""
    sizes = [_TITLE_SIZE, *[_NOTE_SIZE] * (len(heading) - 1)]
    text = [_text(line, size) for line, size in zip(heading, sizes, strict=True)]
    inner = max([width, *(mask.shape[1] for mask in text)])
    shape = (_heading_height(heading) + height + _MARGIN, inner + 2 * _MARGIN)
    canvas = np.full(shape, _BACKGROUND, np.uint8)
    for index, (line, size) in enumerate(zip(heading, sizes, strict=True)):
        _write(canvas, line, _MARGIN, _MARGIN + index * _TITLE_ROW, size, inner)
    return canvas


def _write(canvas: Pixels, text: str, x: int, y: int, size: int, width: int) -> None:
    mask = _text(text, size)[:, :width]
    area = canvas[y : y + mask.shape[0], x : x + mask.shape[1]]
    np.maximum(area, mask[: area.shape[0], : area.shape[1]], out=area)


@functools.lru_cache(maxsize=4096)
def _text(text: str, size: int) -> Pixels:
    """Palette indices of one line of text."""
    font = _font(size)
    left, _, right, bottom = font.getbbox(text or " ")
    image = Image.new("L", (max(1, round(right - left) + 1), max(1, round(bottom) + 1)))
    ImageDraw.Draw(image).text((-left, 0), text, fill=255, font=font)
    ink = np.asarray(image, np.uint16)
    indices: Pixels = (_BACKGROUND + ink * (_TEXT - _BACKGROUND) // 255).astype(np.uint8)
    return indices


@functools.lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _bar_strip(values: NDArray[np.float32], low: float, span: float, thick: int) -> Pixels:
    """(height, n * thick) bars; a value that is not finite is a full bar in its own colour."""
    finite = np.isfinite(values)
    shares = np.where(finite, (np.where(finite, values, 0) - low) / span, 1)
    zero = round((0 - low) / span * (_BAR_HEIGHT - 1))
    tips = (shares * (_BAR_HEIGHT - 1)).round().astype(int)
    heights = np.arange(_BAR_HEIGHT)[:, None]
    inside = (heights >= np.minimum(tips, zero)) & (heights <= np.maximum(tips, zero))
    colours = np.where(finite, 80 + shares * (LEVELS - 100), LEVELS).astype(np.uint8)
    colours = np.broadcast_to(colours, inside.shape)
    strip: Pixels = np.where(inside, colours, _BACKGROUND + 1).astype(np.uint8)
    return strip[::-1].repeat(thick, 1)
