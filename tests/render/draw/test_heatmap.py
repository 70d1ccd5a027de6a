"""A map over the picture it was computed from: what a reader of the PNG sees, looked for in its
pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hookcli.render.draw.canvas import Canvas, heading_height, load_palette, new_canvas
from hookcli.render.draw.heatmap import draw_heat, draw_places, draw_saliency

GREY = 128
SIDE = 224  # pixels of the picture that the network saw
LEFT, GAP = 10, 12  # of the left picture from the edge, and between the two
BAR = 8


def test_a_value_of_the_map_is_drawn_over_its_part_of_the_picture():
    """One of 7 x 7 values: row 1 and column 4, 32 pixels a value, so the middle is at (48, 144)."""
    picture = draw_heat(seen(), planted(1, 4), ["title"])
    assert_heading(picture, ["title", "map of 7x7 enlarged to 224x224; largest value 1"])
    left, right = panels(picture)
    assert np.abs(left.astype(int) - GREY).max() <= 2  # JPEG
    hot = lightness(right) > 200
    rows, columns = np.nonzero(hot)
    assert (rows.mean(), columns.mean()) == pytest.approx((47.5, 143.5), abs=1)
    assert np.abs(right[96:].astype(int) - round(GREY * 0.55)).max() <= 2  # zeros


def test_the_colours_of_places_range_from_the_smallest_to_the_largest_value():
    canvas = draw_places(seen(), np.array([[-3, 1], [1, 5]], np.float32), "title", "the sum")
    words = [text.words for text in canvas.texts]
    assert words[-2:] == ["-3", "5"]
    assert words[1] == "the sum; map of 2x2 enlarged to 224x224"
    right = lightness(panels(canvas)[1])
    assert right[0, 0] == pytest.approx(GREY * 0.55, abs=3)  # as where a Grad-CAM is zero
    assert right[-1, -1] > 200


def test_places_that_are_not_finite_are_cyan_and_counted():
    values = np.array([[0, np.nan], [1, np.inf]], np.float32)
    canvas = draw_places(seen(), values, "title", "the sum")
    assert "2 of 4 values are NaN or Inf: cyan" in " ".join(text.words for text in canvas.texts)
    right = panels(canvas)[1]
    assert (right[:, 120:] == (0, 229, 255)).all()
    assert not (right[:, :100] == (0, 229, 255)).all(-1).any()


@pytest.mark.parametrize(
    ("value", "why"), [(2.5, "every place holds 2.5"), (np.nan, "no value is finite")]
)
def test_places_without_a_range_of_values_are_not_drawn_and_the_heading_says_why(value, why):
    canvas = draw_places(seen(), np.full((2, 2), value, np.float32), "title", "the sum")
    assert len(canvas.photos) == 1
    assert canvas.texts[1].words.endswith(f"not drawn: {why}")


@pytest.mark.parametrize("draw", [draw_heat, draw_saliency])
@pytest.mark.parametrize(
    "values",
    [
        np.full((7, 7), np.nan),
        np.where(np.eye(7) == 1, np.inf, 1.0),
        np.full((7, 7), -1.0),
    ],
    ids=["all NaN", "some Inf", "below zero"],
)
def test_a_map_that_cannot_be_drawn_leaves_the_picture_alone(draw, values):
    canvas = draw(seen(), values.astype(np.float32), ["a heading that is long"])
    assert "not drawn: " in canvas.texts[1].words
    picture = decode(canvas)
    assert picture.shape[1] < LEFT + 2 * SIDE  # no second picture
    assert (np.abs(picture.astype(int) - GREY).max(-1) <= 2).sum() >= SIDE * SIDE


def test_the_lightest_colour_begins_at_the_99th_percentile():
    """0 to 9999 in a square of 100 x 100: the percentile is 9899.01, and half of it is half the
    colour."""
    values = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    _, right = panels(draw_saliency(seen(100), values, ["title"]), 300)
    assert tuple(right[-1, -1]) == tuple(right[-3, 0]) == (255, 236, 170)  # 9999 and 9900
    assert tuple(right[0, 0]) == (14, 14, 18)
    assert np.abs(right[3 * 49, 3 * 50].astype(int) - (135, 125, 94)).max() <= 1  # 4950


def seen(side: int = SIDE, grey: int = GREY) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (grey, grey, grey)).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def planted(row: int, column: int) -> np.ndarray:
    values = np.zeros((7, 7), np.float32)
    values[row, column] = 1
    return values


def decode(picture: Canvas) -> np.ndarray:
    return np.asarray(picture.to_image(load_palette("ember")).convert("RGB"))


def panels(picture: Canvas, side: int = SIDE) -> tuple[np.ndarray, np.ndarray]:
    pixels = decode(picture)
    bottom = len(pixels) - LEFT - 16 - BAR
    top = bottom - side
    right = LEFT + side + GAP
    return pixels[top:bottom, LEFT : LEFT + side], pixels[top:bottom, right : right + side]


def lightness(pixels: np.ndarray) -> np.ndarray:
    return pixels.max(-1).astype(int)


def assert_heading(picture: Canvas, lines: list[str]) -> None:
    got = decode(picture)
    expected = decode(new_canvas(lines, got.shape[1] - 2 * LEFT, 0))
    assert expected.shape[1] == got.shape[1]
    top = heading_height(lines)
    assert np.array_equal(got[:top], expected[:top])
