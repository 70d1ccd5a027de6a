"""Define the colour maps (``ember``, ``tide``), fonts and headings of pictures; encode PNG files.

A canvas is a picture made of palette indices and text. The palette holds 240 levels of the colour
map, one colour for values that are not finite, and a ramp from the background to the text colour.
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from hookcli.config import EMBER
from hookcli.errors import RequestError
from hookcli.records.pictures import LEVELS, MAP_LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.config import GridStyle, Theme

    Pixels: TypeAlias = NDArray[np.uint8]

BACKGROUND, _TEXT = 241, 255
# The colours of the background and of text
_INK: dict[Theme, str] = {"dark": "#16161c #ececf0", "light": "#ffffff #1a1b22"}
NOT_FINITE_COLOUR = (0, 229, 255)
_EMBER = "#040510 #261654 #701a6e #c43058 #f67030 #fdbe52 #fffad6"
TIDE = "tide"
# Both sides are equally light, even to people who cannot tell red from green.
_TIDE = "#8ac0ff #3a86e8 #1c4a8c #282930 #7a3e08 #d67014 #ffac58"
_TIDE_AT = (-1, -0.5, -0.15, 0, 0.15, 0.5, 1)  # steep at zero: most gradient values are small
_NOT_FINITE_IN_TIDE = (255, 255, 255)  # cyan looks too much like the blue of tide
MARGIN = 10
_TITLE_SIZE, NOTE_SIZE, LABEL_SIZE = 14, 12, 10
_TITLE_ROW = 20
_PARTS = "   "  # between the parts of a title
_NARROWEST = 330  # the smallest width of a heading, in pixels
_STOPS = 33  # an odd number, so that the middle colour is the colour of zero in signed maps


@dataclass(frozen=True, slots=True)
class Text:
    words: str
    x: int  # left edge
    y: int  # upper edge
    size: int  # font size
    width: int  # longer text is cut


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture that keeps text and pixels apart, so that SVG and PDF files have real text."""

    pixels: Pixels  # the pixels, without text
    texts: list[Text] = field(default_factory=list)
    # full-colour pictures on top, each with its upper left corner (x, y)
    photos: list[tuple[Image.Image, tuple[int, int]]] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]

    def add(self, block: Canvas, x: int, y: int) -> None:
        height, width = block.pixels.shape
        self.pixels[y : y + height, x : x + width] = block.pixels
        self.texts.extend(replace(text, x=text.x + x, y=text.y + y) for text in block.texts)

    def to_image(self, palette: list[int], *, has_text: bool = True) -> Image.Image:
        pixels = self.pixels.copy()
        for text in self.texts if has_text else ():
            mask = draw_text(text.words, text.size)[:, : text.width]
            area = pixels[text.y : text.y + mask.shape[0], text.x : text.x + mask.shape[1]]
            mask = mask[: area.shape[0], : area.shape[1]]
            np.maximum(area, mask, out=area, where=area >= BACKGROUND)
        image = to_image(pixels, palette)
        if self.photos:
            image = image.convert("RGB")
        for photo, corner in self.photos:
            image.paste(photo, corner)
        return image


def load_palette(colormap: str, theme: Theme = "dark") -> list[int]:
    """Return 256 RGB triples in one list. ``theme`` sets the colours of background and text."""
    steps = _TEXT - BACKGROUND
    ramp = _spread_colours(_INK[theme], np.array([0, steps]), steps + 1)
    return _to_palette(np.concatenate([_list_colours(colormap, LEVELS), ramp]))


def load_map_palette(colormap: str) -> list[int]:
    """Return a flat RGB palette: 255 levels of the colour map, then the colour of NaN and Inf."""
    return _to_palette(_list_colours(colormap, MAP_LEVELS))


def list_stops(colormap: str) -> tuple[str, ...]:
    table = np.array(load_map_palette(colormap)).reshape(-1, 3)
    chosen = np.linspace(0, MAP_LEVELS - 1, _STOPS).round().astype(int)
    return tuple("#" + bytes(colour.tolist()).hex() for colour in table[chosen])


def colormap_of(style: GridStyle) -> str:
    return style.colormap or (TIDE if style.signed else EMBER)


def to_image(pixels: Pixels, palette: list[int]) -> Image.Image:
    image = Image.fromarray(pixels)
    image.putpalette(palette)  # changes the mode of the image to P
    return image


def to_png(image: Image.Image, *, compress_level: int = 4) -> bytes:
    # Level 4 takes two thirds of the time of Pillow's default 6, and makes grids 1 % larger.
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=compress_level)
    return stream.getvalue()


def _to_palette(table: NDArray[np.float64]) -> list[int]:
    return [*table.round().astype(np.uint8).tobytes()]


def _list_colours(colormap: str, levels: int) -> NDArray[np.float64]:
    """Return RGB colours (levels + 1, 3); the last colour is for values that are not finite."""
    middle = levels // 2
    if colormap == EMBER:
        colours = _spread_colours(_EMBER, np.linspace(0, levels - 1, _EMBER.count("#")), levels)
    elif colormap == TIDE:
        at = middle + (levels - 1 - middle) * np.array(_TIDE_AT)
        colours = _spread_colours(_TIDE, at, levels)
    else:
        colours = _matplotlib_colours(colormap, levels)
    not_finite = _NOT_FINITE_IN_TIDE if colormap == TIDE else NOT_FINITE_COLOUR
    return np.concatenate([colours, [not_finite]])


def _spread_colours(anchors: str, at: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Return RGB colours (levels, 3), interpolated between ``anchors`` at the levels ``at``."""
    channels = np.array([*map(ImageColor.getrgb, anchors.split())], float).T
    return np.stack([np.interp(np.arange(levels), at, channel) for channel in channels], 1)


def _matplotlib_colours(name: str, levels: int) -> NDArray[np.float64]:
    from matplotlib import colormaps  # takes 0.2 s: imported only when needed

    if name not in colormaps:
        what = f"there is no colour map {name!r}"
        raise RequestError(what, "ember, or any of matplotlib's: viridis, gray, coolwarm")
    colours: NDArray[np.float64] = colormaps[name](np.linspace(0, 1, levels))[:, :3] * 255
    return colours


def wrap_heading(heading: Sequence[str], width: int) -> list[str]:
    # The first line, the title, breaks only where three spaces separate its parts.
    width = max(width, _NARROWEST)
    title, *notes = heading
    lines = _wrap(title, _PARTS, _TITLE_SIZE, width)
    for note in notes:
        lines += _wrap(note, " ", NOTE_SIZE, width)
    return lines


def _wrap(line: str, space: str, size: int, width: int) -> list[str]:
    lines: list[str] = []
    for word in line.split(space):
        if lines and measure_text(f"{lines[-1]}{space}{word}", size) <= width:
            lines[-1] += f"{space}{word}"
        else:
            lines.append(word)
    return lines


def heading_height(heading: Sequence[str]) -> int:
    return MARGIN + _TITLE_ROW * len(heading) + 4


def new_canvas(heading: Sequence[str], width: int, height: int) -> Canvas:
    sizes = [_TITLE_SIZE, *[NOTE_SIZE] * (len(heading) - 1)]
    lines = list(zip(heading, sizes, strict=True))
    inner = max([width, *(measure_text(line, size) for line, size in lines)])
    shape = (heading_height(heading) + height + MARGIN, inner + 2 * MARGIN)
    canvas = Canvas(np.full(shape, BACKGROUND, np.uint8))
    for index, (line, size) in enumerate(lines):
        write_text(canvas, line, (MARGIN, MARGIN + index * _TITLE_ROW), size=size, width=inner)
    return canvas


def write_text(canvas: Canvas, text: str, at: tuple[int, int], *, size: int, width: int) -> None:
    canvas.texts.append(Text(text, *at, size=size, width=width))


def measure_text(text: str, size: int) -> int:
    width: int = draw_text(text, size).shape[1]
    return width


@functools.lru_cache(maxsize=4096)
def draw_text(text: str, size: int) -> Pixels:
    font = load_font(size)
    left, _, right, bottom = font.getbbox(text or " ")
    image = Image.new("L", (max(1, round(right - left) + 1), max(1, round(bottom) + 1)))
    ImageDraw.Draw(image).text((-left, 0), text, fill=255, font=font)
    ink = np.asarray(image, np.uint16)
    indices: Pixels = (BACKGROUND + ink * (_TEXT - BACKGROUND) // 255).astype(np.uint8)
    return indices


def fill_bars(
    values: NDArray[np.floating], levels: Pixels, low: float, span: float, height: int
) -> Pixels:
    """Return n bars, one for each of ``values``, as palette indices (height, n).

    On an axis from ``low`` to ``low + span``, a bar reaches from 0 to its value; the bar of NaN or
    Inf has the whole height. ``levels`` has the palette index that fills each bar.
    """
    finite = np.isfinite(values)
    tips = (np.where(finite, values, 0) - low) / span * (height - 1)
    zero = (0 - low) / span * (height - 1)
    heights = np.arange(height)[:, None]
    first = np.where(finite, np.minimum(tips, zero), 0).round()
    last = np.where(finite, np.maximum(tips, zero), height - 1).round()
    inside = (heights >= first) & (heights <= last)
    bars: Pixels = np.where(inside, levels, BACKGROUND + 1).astype(np.uint8)
    return bars[::-1]


@functools.lru_cache
def load_font(size: int) -> ImageFont.FreeTypeFont:
    # In Pillow's own font, a space has 2 pixels at size 10, and most letters that are not Latin are
    # missing. Raqm is not installed everywhere and places letters differently.
    spec = find_spec("matplotlib")  # importing matplotlib takes 0.1 s
    (folder,) = spec.submodule_search_locations  # type: ignore[union-attr, misc]
    file = Path(folder, "mpl-data/fonts/ttf/DejaVuSans.ttf")
    return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
