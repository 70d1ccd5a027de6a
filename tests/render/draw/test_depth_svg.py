"""The page's chart of statistics over depth: its axes, its names, and the gaps of its line."""

from __future__ import annotations

import re

from hookcli.render.draw.depth_svg import draw_depth
from hookcli.render.draw.svg import list_round_ticks
from tests.render.draw.test_gradient_flow import output, whole


def draw(means, name="l{}"):
    rows = [output(name.format(index), index, None) for index in range(len(means))]
    rows = [
        {**row, "side": "output", "mean": mean, "std": None if mean is None else 0.5}
        for row, mean in zip(rows, means, strict=True)
    ]
    return draw_depth(whole(rows), {row["call_id"]: "here" for row in rows})


def test_no_line_is_drawn_across_a_layer_without_finite_values():
    text = draw([1.0, 2.0, None, 3.0, 1.0])
    lines = re.findall(r'<polyline points="([^"]*)"', text)
    assert [len(line.split()) for line in lines] == [2, 2]
    assert "l2  not finite" in text


def test_names_are_upright_where_all_have_room():
    assert draw([1.0, 2.0]).count('class="name">l') == 2
    turned = re.findall(r"rotate\(-90\)[^>]*>(layer\.\d+)<", draw([1.0] * 100, "layer.{}"))
    assert turned == [f"layer.{index}" for index in range(0, 100, 2)]


def test_ticks_are_round_numbers_that_are_about_evenly_spaced():
    """From asinh(-1.4) = -1.14 to asinh(120) = 5.48 in steps of 1.1; -0.02 is too near 0."""
    assert list_round_ticks(-0.7, 60, 0.5) == [0, -0.7, 0.6, 2, 7, 20, 60]
