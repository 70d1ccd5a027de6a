"""Full-colour pictures side by side, each with a caption: a photo, and maps of its places."""

from __future__ import annotations

import colorsys
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from hookcli.config import EMBER
from hookcli.records.pictures import LEVELS
from hookcli.render.draw.canvas import (
    LABEL_SIZE,
    MARGIN,
    NOTE_SIZE,
    heading_height,
    load_font,
    load_palette,
    new_canvas,
    to_png,
    wrap_heading,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.config import Theme

_SIDES = (320, 224)  # pixels: the longer side of one of a few panels, and of many
_FEW = 4
_GAP, _CAPTION = 12, 18
_MOST_COLUMNS = 6


def choose_color(number: int) -> tuple[int, int, int]:
    """Return the colour of a mark; neighbouring numbers have very different colours."""
    red, green, blue = colorsys.hls_to_rgb((0.52 + 0.381966 * number) % 1, 0.6, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture with a caption below it."""

    picture: Image.Image
    caption: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A ring on a picture.

    Attributes:
        place: the middle of the ring, in shares of the width and height of the picture.
        label: a number beside the ring; empty for none.
    """

    place: tuple[float, float]
    colour: tuple[int, int, int]
    label: str = ""


def open_photo(data: bytes | None, grid: tuple[int, int], panels: int) -> Image.Image:
    """Return an image as one of ``panels`` shows it; ``grid`` (rows, columns) has its proportions.

    Without ``data``, an image file, the picture is empty.
    """
    side = _SIDES[panels > _FEW]
    if data is None:
        rows, columns = grid
        scale = side / max(grid)
        return Image.new("RGB", (max(1, round(columns * scale)), max(1, round(rows * scale))))
    with Image.open(io.BytesIO(data)) as photo:
        scale = side / max(photo.size)
        size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
        return photo.convert("RGB").resize(size)


def draw_map(colours: NDArray[np.uint8], size: tuple[int, int]) -> Image.Image:
    """Return a map of places (rows, columns, 3), enlarged to a width and height."""
    return Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)


def colour_heat(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.uint8]:
    """Return the colours of values (…, 3), from dark at ``low`` to light at ``high``."""
    palette = np.array(load_palette(EMBER), np.uint8).reshape(-1, 3)
    share = (values - low) / (high - low) if high > low else np.zeros_like(values)
    levels = (share.clip(0, 1) * (LEVELS - 1)).round().astype(int)
    colours: NDArray[np.uint8] = palette[levels]
    return colours


def mark_places(picture: Image.Image, marks: Sequence[Mark], radius: int = 6) -> Image.Image:
    """Return a copy of a picture with rings, each with a dark edge to stand out."""
    copy = picture.copy()
    pen = ImageDraw.Draw(copy)
    for mark in marks:
        x, y = mark.place[0] * picture.width, mark.place[1] * picture.height
        for reach, colour, width in ((radius + 1, (0, 0, 0), 4), (radius, mark.colour, 2)):
            pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=colour, width=width)
        right = x + 3 * radius < picture.width
        at = (x + radius + 3 if right else x - radius - 3, y)
        pen.text(
            at,
            mark.label,
            fill=mark.colour,
            font=load_font(LABEL_SIZE),
            anchor="lm" if right else "rm",
            stroke_width=2,
            stroke_fill=(0, 0, 0),
        )
    return copy


def draw_panels(panels: Sequence[Panel], heading: Sequence[str], theme: Theme) -> bytes:
    """Return a PNG of panels in rows, below a heading."""
    width = max(panel.picture.width for panel in panels)
    height = max(panel.picture.height for panel in panels)
    columns = min(_MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    whole = columns * (width + _GAP) - _GAP
    heading = wrap_heading(heading, whole)
    step = height + _CAPTION + _GAP
    canvas = new_canvas(heading, whole, rows * step)
    for index, panel in enumerate(panels):
        x = MARGIN + index % columns * (width + _GAP)
        y = heading_height(heading) + index // columns * step
        canvas.photos.append((panel.picture, (x, y)))
        at = (x, y + panel.picture.height + 2)
        write_text(canvas, panel.caption, at, size=NOTE_SIZE, width=width)
    return to_png(canvas.to_image(load_palette(EMBER, theme)))
