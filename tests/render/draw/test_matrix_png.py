"""Heat maps, by their pixels."""

from __future__ import annotations

import numpy as np

from hookcli.render.draw.figures import colors_of
from hookcli.render.draw.matrix_png import draw_matrix
from tests.pixels import find, read_pixels


def test_a_long_heading_fits_above_a_small_matrix():
    heading = ["Which layers of a model with a long name compute the same", "20 images"]
    png, cells = draw_matrix(np.eye(2), (["a", "b"], ["a", "b"]), heading, "light")
    inked = (read_pixels(png).min(2) < 128)[: cells.top].nonzero()[1]
    assert 0.7 * cells.size[0] < inked.max() < cells.size[0] - 8


def test_each_cell_of_a_matrix_has_the_color_of_its_value_where_it_is_said_to_be():
    shape = (3, 4)
    values = np.linspace(0, 1, shape[0] * shape[1]).reshape(shape)
    names = [f"row{n}" for n in range(shape[0])], [f"column{n}" for n in range(shape[1])]
    png, cells = draw_matrix(values, names, ["a title"], "dark")
    scale = colors_of("dark").scale
    assert read_pixels(png).shape == (*cells.size[::-1], 3)
    for (row, column), value in np.ndenumerate(values):
        y, x = cells.top + (row + 0.5) * cells.side, cells.left + (column + 0.5) * cells.side
        color = scale[min(int(value * len(scale)), len(scale) - 1)]
        assert find(png, color, within=4)[int(y), int(x)], (row, column)
