"""The maps of the heads over the picture: what a reader of the PNG sees, looked for in its
pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hookcli.render.draw.attention_grid import draw_heads, draw_maps
from hookcli.render.draw.canvas import Canvas, heading_height, load_palette
from hookcli.render.draw.heatmap import lay_over

SIDE, LEFT, STEP = 168, 10, 178
CAPTION = 16
TOP = heading_height(["title"]) + CAPTION
MARK = (0, 229, 255)


def test_a_value_is_drawn_over_its_part_of_the_picture_alone():
    """Row 1, column 2 of 4 by 4: the pixels from 42 to 83 down and from 84 to 125 across."""
    maps = np.zeros((1, 4, 4), np.float32)
    maps[0, 1, 2] = 0.3
    lit = tile(draw_heads(seen(), maps, ["head 0"], ["title"]), 1).max(-1) > 200
    rows, columns = np.nonzero(lit)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (42, 83, 84, 125)
    assert lit.sum() == 42 * 42


def test_the_place_of_the_query_is_framed_in_the_picture_and_in_every_map():
    """A quarter of the picture from its middle on; the frame lies outside of it."""
    maps = np.ones((2, 4, 4), np.float32)
    picture = draw_heads(seen(), maps, ["0", "1"], ["title"], (0.5, 0.5, 0.25, 0.25))
    for index in range(3):
        framed = (tile(picture, index) == MARK).all(-1)
        rows, columns = np.nonzero(framed)
        assert (rows.min(), rows.max(), columns.min(), columns.max()) == (83, 126, 83, 126)
        assert not framed[84:126, 84:126].any()
    plain = draw_heads(seen(), maps, ["0", "1"], ["title"])
    assert not (decode(plain) == MARK).all(-1).any()


@pytest.mark.parametrize(("heads", "columns", "rows"), [(3, 3, 1), (12, 4, 3), (7, 4, 2)])
def test_heads_are_in_rows_beside_the_picture(heads, columns, rows):
    maps = np.ones((heads, 4, 4), np.float32)
    height, width = decode(
        draw_heads(seen(), maps, [f"head {n}" for n in range(heads)], ["title"])
    ).shape[:2]
    assert (width - 2 * LEFT + 10) // STEP == columns + 1
    assert (height - heading_height(["title"]) - LEFT) // (SIDE + 2 * CAPTION + 10) == rows


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_map_that_cannot_be_drawn_leaves_the_picture_grey(value):
    maps = np.ones((2, 4, 4), np.float32)
    maps[1] = value
    grey = tile(draw_heads(seen(), maps, ["0", "1"], ["title"]), 2)
    assert np.abs(grey.astype(int) - round(128 * 0.55)).max() <= 2


def seen(width: int = 224, height: int = 224) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (128, 128, 128)).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def decode(picture: Canvas) -> np.ndarray:
    return np.asarray(picture.to_image(load_palette("ember")).convert("RGB"))


def tile(picture: Canvas, index: int) -> np.ndarray:
    left = LEFT + index * STEP
    return decode(picture)[TOP : TOP + SIDE, left : left + SIDE]


def test_maps_laid_over_the_picture_in_grey_have_the_colours_of_the_tiles():
    """A browser mixes the two as ``alpha_composite`` does."""
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    maps = Image.open(io.BytesIO(draw_maps(levels)))
    assert (np.asarray(maps) == levels).all()
    picture = Image.new("RGB", (16, 16), (200, 200, 200))  # at 55 % brightness: 110
    below = Image.fromarray(np.full((16, 16, 4), (110, 110, 110, 255), np.uint8))
    mixed = np.asarray(Image.alpha_composite(below, maps.convert("RGBA")))[..., :3]
    wanted = lay_over(picture, (levels / 255).astype(np.float32))
    assert np.abs(mixed - wanted.astype(float)).max() <= 1.01
