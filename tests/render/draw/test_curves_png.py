"""Curves over depth, by their pixels."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.render.draw.curves_png import Curve, draw_curves
from hookcli.render.draw.figures import colors_of
from tests.pixels import find, read_pixels

SERIES = colors_of("light").series
NAMES = [f"layer{number}" for number in range(6)]


def test_a_curve_is_as_high_as_its_values_and_has_gaps():
    low, high = Curve("low", [0.2] * 6), Curve("high", [0.8, 0.8, None, 0.8, 0.8, 0.8])
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
