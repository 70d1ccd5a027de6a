"""Text and themes of pictures: what a reader of the pixels sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hookcli.render.draw.canvas import (
    BACKGROUND,
    Canvas,
    load_palette,
    write_text,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.config import Theme


def test_the_light_theme_is_dark_text_on_white_and_keeps_the_colours_of_maps():
    dark, light = colours("dark"), colours("light")
    assert np.array_equal(dark[:BACKGROUND], light[:BACKGROUND])
    assert light[BACKGROUND].tolist() == [255, 255, 255]
    assert light[-1].max() < 40 < 200 < dark[-1].min()
    assert dark[BACKGROUND].max() < 40


def test_text_is_drawn_over_the_background_alone():
    """Five lines of a tile below the upper edge of the text keep their level."""
    canvas = Canvas(np.full((20, 60), BACKGROUND, np.uint8))
    canvas.pixels[5:10] = 7
    write_text(canvas, "grape", (0, 0), size=12, width=60)
    drawn = np.asarray(canvas.to_image(load_palette("ember")))
    assert (drawn[5:10] == 7).all()
    assert (drawn[10:] > BACKGROUND).any()


def colours(theme: Theme) -> NDArray[np.int_]:
    return np.array(load_palette("ember", theme)).reshape(-1, 3)
