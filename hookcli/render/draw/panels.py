"""Draw the pictures of ``hookcli places``: photos and maps of layers, with rings around places."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.config import Theme

    Marks: TypeAlias = Sequence[tuple[float, float]]
    Panel: TypeAlias = tuple[Image.Image, str]

_SIDES = (320, 224)  # pixels: the longer side of one of a few panels, and of many
_FEW = 4
_GAP, _CAPTION = 12, 18
_MOST_COLUMNS = 6
_RADIUS = 6  # of a ring


@dataclass(frozen=True, slots=True)
class PlaceMap:
    grid: tuple[int, int]  # rows and columns of P places
    colours: NDArray[np.uint8] | None  # (P, 3)
    values: NDArray[np.float64] | None  # (P,)
    marks: Marks  # the middles of places, in shares of the width and height
    low: float  # the value that is drawn dark; 1 is drawn light


def draw_place_maps(
    photos: Mapping[str, bytes | None],
    layers: Mapping[str, Mapping[str, PlaceMap]],
    heading: Sequence[str],
    theme: Theme,
) -> bytes:
    """Return a PNG of panels: photos, and the maps of layers.

    A single photo comes first, followed by a map for each layer. If there are two photos, no maps
    are drawn: both photos are repeated for each layer, with the layer's marks.
    """
    panels = [*_list_panels(photos, layers)]
    width = max(picture.width for picture, _ in panels)
    height = max(picture.height for picture, _ in panels)
    columns = min(_MOST_COLUMNS, len(panels))
    whole = columns * (width + _GAP) - _GAP
    heading = wrap_heading(heading, whole)
    step = height + _CAPTION + _GAP
    canvas = new_canvas(heading, whole, -(-len(panels) // columns) * step)
    for index, (picture, caption) in enumerate(panels):
        x = MARGIN + index % columns * (width + _GAP)
        y = heading_height(heading) + index // columns * step
        canvas.photos.append((picture, (x, y)))
        write_text(canvas, caption, (x, y + picture.height + 2), size=NOTE_SIZE, width=width)
    return to_png(canvas.to_image(load_palette(EMBER, theme)))


def _list_panels(
    photos: Mapping[str, bytes | None], layers: Mapping[str, Mapping[str, PlaceMap]]
) -> Iterator[Panel]:
    is_pair = len(photos) > 1
    side = _SIDES[len(photos) * len(layers) + (not is_pair) > _FEW]
    opened = {}
    for key, data in photos.items():
        grid = next(maps[key].grid for maps in layers.values() if key in maps)
        # without a picture, the photo is black and has the proportions of ``grid`` (rows, columns)
        with Image.open(io.BytesIO(data)) if data else Image.new("RGB", grid[::-1]) as photo:
            scale = side / max(photo.size)
            size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
            opened[key] = photo.convert("RGB").resize(size)
        if not is_pair:
            yield opened[key], key if data else "no picture in the run"
    for layer, maps in layers.items():
        for key, photo in opened.items():
            if key not in maps:
                continue
            shown, caption = maps[key], f"{layer} {'x'.join(map(str, maps[key].grid))}"
            if is_pair:
                yield _mark(photo, shown.marks), f"{key} {caption}"
                continue
            colours = shown.colours
            if shown.values is not None:
                colours = _colour_heat(shown.values, shown.low)
                caption += f", {shown.low:.2f} to 1"
            pixels = Image.fromarray(np.asarray(colours).reshape(*shown.grid, 3))
            yield _mark(pixels.resize(photo.size, Image.Resampling.NEAREST), shown.marks), caption


def _colour_heat(values: NDArray[np.float64], low: float) -> NDArray[np.uint8]:
    palette = np.array(load_palette(EMBER), np.uint8).reshape(-1, 3)
    share = (values - low) / (1 - low) if low < 1 else np.zeros_like(values)
    levels = (share.clip(0, 1) * (LEVELS - 1)).round().astype(int)
    colours: NDArray[np.uint8] = palette[levels]
    return colours


def _mark(picture: Image.Image, marks: Marks) -> Image.Image:
    copy = picture.copy()
    pen = ImageDraw.Draw(copy)
    for number, (across, down) in enumerate(marks):
        # neighbouring numbers have very different colours
        colour = f"hsl({(187.2 + 137.508 * number) % 360:.2f}, 100%, 60%)"
        x, y = across * picture.width, down * picture.height
        for reach, edge, width in ((_RADIUS + 1, "black", 4), (_RADIUS, colour, 2)):
            pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=edge, width=width)
        right = x + 3 * _RADIUS < picture.width
        pen.text(
            (x + _RADIUS + 3 if right else x - _RADIUS - 3, y),
            str(number + 1) if len(marks) > 1 else "",
            fill=colour,
            font=load_font(LABEL_SIZE),
            anchor="lm" if right else "rm",
            stroke_width=2,
            stroke_fill="black",
        )
    return copy
