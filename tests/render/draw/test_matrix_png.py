"""Heat maps, by their pixels."""

from __future__ import annotations

import numpy as np

from hookcli.render.draw.figures import colors_of
from hookcli.render.draw.matrix_png import draw_matrix
from tests.pixels import find, read_pixels


def test_a_long_heading_fits_above_a_small_matrix():
    heading = ["Which layers of a model with a long name compute the same", "20 images"]
    png = draw_matrix(np.eye(2), (["a", "b"], ["a", "b"]), heading, "light")
    pixels = read_pixels(png)
    inked = (pixels.min(2) < 128)[: 18 + 18 * len(heading)].nonzero()[1]
    assert 0.7 * pixels.shape[1] < inked.max() < pixels.shape[1] - 8


def test_the_cells_of_a_small_matrix_are_large_and_have_the_colors_of_their_values():
    """Four columns of 330 pixels have cells of 82 pixels."""
    shape = (3, 4)
    values = np.linspace(0, 1, shape[0] * shape[1]).reshape(shape)
    names = [f"row{n}" for n in range(shape[0])], [f"column{n}" for n in range(shape[1])]
    png = draw_matrix(values, names, ["a title"], "dark")
    scale = colors_of("dark").scale
    left, top, side = 20 + 6 * len("row0"), 18 + 18, 82
    for (row, column), value in np.ndenumerate(values):
        y, x = top + row * side, left + column * side
        color = scale[min(int(value * len(scale)), len(scale) - 1)]
        cell = find(png, color, within=4)[y + 2 : y + side - 2, x + 2 : x + side - 2]
        assert cell.mean() > 0.9, (row, column)  # the rest is its number
