"""Thumbnails: what is seen of an image, and where it stands among the others."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from hookcli.render.draw.thumbnails import COLUMNS, SIDE, draw_thumbnails, shrink

RED, GREEN, BLUE = (220, 20, 20), (20, 220, 20), (20, 20, 220)


def jpeg(pixels):
    stream = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def plain(color):
    return jpeg(np.full((SIDE, SIDE, 3), color))


def read(data):
    return np.asarray(Image.open(io.BytesIO(data)), int)


def test_a_thumbnail_is_the_middle_of_a_long_picture():
    """Of three squares side by side the middle one, shrunk to half."""
    pixels = np.repeat(np.array([[RED, GREEN, BLUE]]), 2 * SIDE, axis=1).repeat(2 * SIDE, axis=0)
    square = shrink(jpeg(pixels))
    colors = np.frombuffer(square, np.uint8).reshape(SIDE, SIDE, 3).astype(int)
    inside = colors[8:-8, 8:-8]
    assert abs(inside - GREEN).max() < 12


def test_thumbnails_are_side_by_side_in_rows_and_do_not_overlap():
    colors = [RED, GREEN, BLUE] * 3  # one more than a row
    pixels = read(draw_thumbnails([shrink(plain(color)) for color in colors]))
    assert pixels.shape == (2 * SIDE, COLUMNS * SIDE, 3)
    for index, color in enumerate(colors):
        row, column = divmod(index, COLUMNS)
        tile = pixels[row * SIDE :, column * SIDE :][:SIDE, :SIDE]
        assert abs(tile - color).max() < 12
    assert pixels[SIDE:, SIDE:].max() < 8  # the rest of the second row is black
