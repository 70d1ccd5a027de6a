"""Points in a plane, by their pixels."""

from __future__ import annotations

import numpy as np

from hookcli.render.draw.figures import colors_of
from hookcli.render.draw.scatter_png import draw_scatter
from tests.pixels import find, read_pixels

SERIES = colors_of("light").series


def test_points_have_the_color_of_their_group_on_their_side():
    points = np.array([[-1.0, -1], [-1, 1], [1, 1], [1, -1]])
    png = draw_scatter(points, {"a": [0, 1], "b": [2, 3]}, [2], ("x", "y"), ["a title"], "light")
    left, right = (find(png, color).nonzero()[1] for color in SERIES[:2])
    chart = 44 + 640  # beyond it is the legend
    assert left[left < chart].max() < right[right < chart].min()
    assert (left > chart).any()
    assert (right > chart).any()


def test_more_groups_than_colors_share_the_last_color():
    points = np.stack([np.arange(40.0), np.arange(40.0)], axis=1)
    groups = {f"_{number} $x_{number}$": [number] for number in range(40)}
    png = draw_scatter(points, groups, [], ("x", "y"), ["a title"], "light")
    side, height = 640, len(read_pixels(png))
    for number in range(9, 40):  # margins of a twentieth are around the points
        along = round(side * (0.05 + number / 39) / 1.1)
        assert find(png, SERIES[9])[height - 44 - along - 1, 44 + along], number
