"""Heat maps, curves and points, by the pixels of their pictures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hookcli.render.charts.curves_png import Curve, draw_curves
from hookcli.render.charts.figures import colors_of
from hookcli.render.charts.matrix_png import draw_matrix
from hookcli.render.charts.scatter_png import draw_scatter

SERIES = colors_of("light").series
NAMES = [f"layer{number}" for number in range(6)]


def read_pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def find(png, color, within=40):
    """The pixels of about one colour, (H, W)."""
    wanted = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)])
    return np.abs(read_pixels(png) - wanted).max(2) <= within


@pytest.mark.parametrize("shape", [(3, 4), (60, 2)])
def test_each_cell_of_a_matrix_has_the_color_of_its_value_where_it_is_said_to_be(shape):
    values = np.linspace(0, 1, shape[0] * shape[1]).reshape(shape)
    names = [f"row{n}" for n in range(shape[0])], [f"column{n}" for n in range(shape[1])]
    png, cells = draw_matrix(values, names, ["a title"], "dark")
    scale = colors_of("dark").scale
    assert Image.open(io.BytesIO(png)).size == cells.size
    for (row, column), value in np.ndenumerate(values):
        y, x = cells.top + (row + 0.5) * cells.side, cells.left + (column + 0.5) * cells.side
        color = scale[min(int(value * len(scale)), len(scale) - 1)]
        assert find(png, color, within=4)[int(y), int(x)], (row, column)


def test_a_curve_is_as_high_as_its_values_and_has_gaps():
    low, high = Curve("low", [0.2] * 6), Curve("high", [0.8, 0.8, float("nan"), 0.8, 0.8, 0.8])
    png, plain = (
        draw_curves(NAMES, [low, high], levels, ["a title"], "light")
        for levels in ([("a level", 0.5)], [])
    )
    middles = [np.median(find(plain, color).nonzero()[0]) for color in SERIES[:2]]
    changed = (read_pixels(png) != read_pixels(plain)).any(2).nonzero()[0]
    level = np.median(changed[changed > 26 + 18 + 20])  # below the heading and the legend
    assert middles[0] - level == pytest.approx(level - middles[1], abs=3)
    assert find(png, SERIES[0]).sum() > 1.2 * find(png, SERIES[1]).sum()


def test_a_band_around_a_curve_shows_how_far_its_values_vary():
    plain, spread = (
        draw_curves(NAMES, [Curve("a", [0.5] * 6, band)], [], ["a title"], "light")
        for band in ((), [0.1] * 6)
    )
    changed = (read_pixels(plain) != read_pixels(spread)).any(2)
    assert np.ptp(changed.nonzero()[0]) == pytest.approx(0.2 / 1.02 * 300, abs=3)


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
    few = draw_scatter(points[:10], dict(list(groups.items())[:10]), [], ("x", "y"), ["t"], "light")
    assert find(png, SERIES[9]).sum() > 10 * find(few, SERIES[9])[:, :684].sum()
    assert Image.open(io.BytesIO(png)).size == Image.open(io.BytesIO(few)).size
