"""Gradient flow over depth: the numbers behind the pictures, the PNG by its pixels, the SVG by its
marks."""

from __future__ import annotations

import io
import itertools
import math
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from hookcli.records.rows import LayerRow
from hookcli.render.draw import depth_svg, gradient_flow, overview_png
from hookcli.render.draw.gradient_flow import FlowLayer
from hookcli.render.draw.svg import find_decades, list_round_ticks, list_ticks, power_of_ten

LINE, DOTS, WARNING, INK = (0x8C, 0x2F, 0x63), (0x1F, 0x6F, 0x9C), (0xD6, 0x28, 0x1C), (26, 27, 34)
SVG = "{http://www.w3.org/2000/svg}"


def test_layers_are_in_the_order_of_calls_with_their_parameters():
    rows = [
        output("fc", 2, 0.5),
        output("conv", 1, 0.25),
        param("conv", 1, 4.0, ratio=0.02),
        param("conv", 1, 2.0, ratio=0.08),
        param("class_token", 0, 5.0),
        output("conv", 1, 9.0) | {"side": "grad_input"},
        param("fc", 2, None) | {"reason": "it is frozen"},
    ]
    assert list_flow_layers(rows) == [
        FlowLayer("class_token", None, (5.0,), None, "", ""),
        FlowLayer("conv", 0.25, (4.0, 2.0), 0.08, "", ""),
        FlowLayer("fc", 0.5, (), None, "", ""),
    ]


def test_parameters_of_a_module_that_is_called_twice_are_at_its_first_call():
    rows = [
        output("relu", 1, 1.0),
        output("relu", 3, 2.0, call="relu#1"),
        param("relu", 1, 5.0),
    ]
    assert [(layer.call_id, layer.params) for layer in list_flow_layers(rows)] == [
        ("relu", (5.0,)),
        ("relu#1", ()),
    ]


def test_a_block_comes_after_its_parts_and_the_model_last():
    paths = ("", "stem", "stage", "stage.conv", "stage/op:add", "stage2", "stage2.conv", "fc")
    rows = [output(path, order, 1.0, path or "(model)") for order, path in enumerate(paths)]
    calls = [layer.call_id for layer in list_flow_layers(rows)]
    assert calls == [
        *("stem", "stage.conv", "stage/op:add", "stage"),
        *("stage2.conv", "stage2", "fc", "(model)"),
    ]


@pytest.mark.parametrize(
    ("row", "mark", "note"),
    [
        ({"norm": None, "nan_count": 3, "inf_count": 1}, "broken", "3 NaN, 1 Inf"),
        ({"norm": 2.0, "inf_count": 1}, "broken", "0 NaN, 1 Inf"),
        ({"norm": math.inf}, "broken", "the norm is not finite"),
        ({"norm": None, "reason": "detached"}, "none", "detached"),
        ({"norm": None}, "none", "no gradient"),
        ({"norm": 0.0}, "zero", "the gradient is zero everywhere"),
    ],
)
def test_what_has_no_place_on_a_logarithmic_axis_is_marked(row, mark, note):
    assert list_flow_layers([output("conv", 1, 1.0) | row]) == [
        FlowLayer("conv", None, (), None, mark, note)
    ]


def test_a_layer_with_one_broken_parameter_is_broken_and_keeps_what_is_finite():
    rows = [
        output("conv", 1, 1.0),
        param("conv", 1, math.nan) | {"nan_count": 2},
        param("conv", 1, 3.0, ratio=0.5),
    ]
    assert list_flow_layers(rows) == [FlowLayer("conv", 1.0, (3.0,), 0.5, "broken", "2 NaN, 0 Inf")]


@pytest.mark.parametrize(
    ("fault", "colour", "high"),
    [
        ({"norm": None, "nan_count": 1}, WARNING, True),
        ({"norm": None, "reason": "cut"}, INK, False),
    ],
    ids=["NaN at the top", "none at the bottom"],
)
def test_a_layer_without_a_norm_is_marked_at_its_place_on_the_edge(fault, colour, high):
    """The third of five layers that are alike, but for one: its mark stands in the middle."""
    rows = [output(f"l{i}", i, 10.0**-i) | (fault if i == 2 else {}) for i in range(5)]
    picture = decode(draw_flow(rows, ["title"]))
    rows_of_mark, columns = np.nonzero(near(picture, colour))
    rows_of_mark = rows_of_mark[
        np.abs(columns - 460) < 8
    ]  # the axes reach from 60 to 860; left of the legend
    rows_of_line, columns = np.nonzero(near(picture, LINE))
    assert rows_of_mark.size
    if high:
        assert rows_of_mark.max() < rows_of_line[columns < 200].min()
    else:
        assert rows_of_mark.min() > rows_of_line.max()


def test_a_picture_of_nothing_finite_and_of_names_like_formulas_is_drawn():
    rows = [output(f"$x_{i}^$ \n<b>", i, None) | {"nan_count": 1} for i in range(3)]
    assert near(decode(draw_flow(rows, ["$\\frac$"])), WARNING).any()
    assert decode(draw_flow([], ["title"])).shape[1] == 880


def test_an_axis_has_at_most_eight_ticks_at_whole_decades():
    assert find_decades([0.02, 30.0]) == (-2, 2)
    assert list_ticks(-40, 38) == [-40, -28, -16, -4, 8, 20, 32]
    assert power_of_ten(-12) == "10⁻¹²"


def test_points_of_the_line_are_at_their_logarithms():
    """Decades from -3 to 1 over 200 pixels from 40: 0.01, 0.1 and 1 are at 190, 140 and 90; 90.7
    apart."""
    rows = [output(f"l{i}", i, norm) for i, norm in enumerate((0.01, 0.1, 1.0))]
    (line,) = find(tree(rows), "polyline", "line")
    assert line.get("points") == "101.3,190.0 192.0,140.0 282.7,90.0"


def test_the_line_is_broken_where_there_is_no_norm():
    rows = [output(f"l{i}", i, None if i == 2 else 1.0) for i in range(5)]
    lines = find(tree(rows), "polyline", "line")
    assert [len(line.get("points").split()) for line in lines] == [2, 2]


def test_bars_are_as_high_as_the_logarithm_of_the_ratio():
    """Decades from -5 to -1 over 80 pixels."""
    rows = [row for i in range(3) for row in layer(f"l{i}", i, ratio=10.0 ** (i - 4))]
    bars = find(tree(rows), "rect", "bar")
    assert [bar.get("height") for bar in bars] == ["20.0", "40.0", "60.0"]


def test_every_layer_tells_its_numbers_and_leads_to_its_place():
    rows = [*layer("conv", 1, ratio=0.02), output("fc", 2, None) | {"reason": "cut <off>"}]
    svg = tree(rows, {"conv": "layer-0"})
    (link,) = svg.iter(f"{SVG}a")
    assert link.get("href") == "#layer-0"
    assert [title.text for title in svg.iter(f"{SVG}title")] == [
        "conv  output 1  parameters 0.5  to weights 0.02",
        "fc  cut <off>",
    ]


def test_marks_are_at_the_edges_and_in_the_legend_if_there_are_any():
    faults = [{}, {"nan_count": 2}, {"norm": None, "reason": "cut"}, {"norm": 0.0}]
    rows = [output(f"l{i}", i, 1.0) | fault for i, fault in enumerate(faults)]
    svg = tree(rows)
    for mark, y in (("broken", 30), ("none", 250), ("zero", 250)):
        at = [path.get("transform") for path in find(svg, "path", mark)]
        assert at[0] == "translate(0.0 0.0)", mark  # the legend's
        assert [re.findall(r"[\d.]+", text)[1] for text in at[1:]] == [f"{y}.0"], mark
    assert not find(tree([output("a", 1, 1.0)]), "path", "broken")


def test_as_many_layers_are_named_as_have_room():
    svg = tree(many(300))
    names = [text for text in find(svg, "text", "tick") if text.get("transform")]
    assert len(names) == 60
    assert names[0].text == "…block0.denselayer0.conv"
    assert len(list(svg.iter(f"{SVG}title"))) == 300
    xs = [float(re.findall(r"[\d.]+", name.get("transform"))[0]) for name in names]
    assert all(b - a >= 12.9 for a, b in itertools.pairwise(xs))


def test_no_line_is_drawn_across_a_layer_without_finite_values_and_few_names_are_upright():
    figures = ({"side": "output", "mean": m, "std": m} for m in (1.0, 2.0, None, 3.0, 1.0))
    rows = whole([output(f"l{index}", index, None) | each for index, each in enumerate(figures)])
    text = depth_svg.draw_depth(rows, {row.call_id: "here" for row in rows})
    lines = re.findall(r'<polyline points="([^"]*)"', text)
    assert [len(line.split()) for line in lines] == [2, 2]
    assert "l2  not finite" in text
    assert re.findall(r'class="name">([^<]*)', text) == ["l0", "l1", "l2", "l3", "l4"]


def test_ticks_are_round_numbers_that_are_about_evenly_spaced():
    """From asinh(-1.4) = -1.14 to asinh(120) = 5.48, at least 0.74 apart: 1 is too near 0.5."""
    assert list_round_ticks(-0.7, 60, 0.5) == [0, -0.5, 0.5, 2, 5, 20, 50]


def test_ticks_of_a_narrow_axis_do_not_overlap():
    """On an axis of 176 pixels, two ticks are at least 19 apart; -0.9 and -1 were 5 apart."""
    assert list_round_ticks(-1.3, 1.3, 0.8) == [0, -0.5, -1, 0.5, 1]
    assert list_round_ticks(0, 0, 1) == [0]


def test_a_hostile_name_stays_text():
    rows = [output("<script>&\u202e", 1, 1.0)]
    (named,) = find(tree(rows), "text", "name")
    assert named.text == "<script>&\\u202e"
    assert "<script" not in draw_flow_svg(rows, {})


def list_flow_layers(rows: list[dict]) -> list[FlowLayer]:
    return gradient_flow.list_flow_layers(whole(rows))


def draw_flow(rows: list[dict], heading: list[str]) -> bytes:
    return overview_png.draw_flow(whole(rows), heading)


def draw_flow_svg(rows: list[dict], anchors: dict[str, str]) -> str:
    return depth_svg.draw_flow_svg(whole(rows), anchors)


def whole(rows: list[dict]) -> list[LayerRow]:
    others = {
        **dict.fromkeys(("module_type", "output_key", "dtype", "layout"), ""),
        **dict.fromkeys(("mean", "std", "min", "max", "zero_fraction")),
        **dict.fromkeys(("dead_channels", "channels")),
        **dict.fromkeys(("call_index", "images", "params"), 0),
        "shape": (1,),
    }
    return [LayerRow(**others | row) for row in rows]


def output(path: str, order: int, norm: float | None, call: str = "") -> dict:
    return {
        "order": order,
        "call_id": call or path,
        "module_path": path,
        "side": "grad_output",
        "norm": norm,
        "ratio": None,
        "nan_count": 0,
        "inf_count": 0,
        "reason": "",
    }


def param(path: str, order: int, norm: float | None, ratio: float | None = None) -> dict:
    return output(path, order, norm) | {"side": "param", "ratio": ratio}


def layer(path: str, order: int, ratio: float) -> list[dict]:
    return [output(path, order, 1.0), param(path, order, 0.5, ratio)]


def many(count: int) -> list[dict]:
    rows = []
    for i in range(count):
        path = f"features.denseblock{i // 60}.denselayer{i}.conv"
        rows.append(output(path, i, 10 ** (3 * i / count - 4)))
        if i % 3 == 0:
            rows.append(param(path, i, 10 ** (3 * i / count - 5), 10 ** (i / count - 3)))
    return rows


def decode(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.info.get("Software")) == ("PNG", None)
        return np.asarray(image.convert("RGB"))


def near(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return np.abs(picture.astype(int) - colour).max(-1) <= 8


def tree(rows: list[dict], anchors: dict[str, str] | None = None) -> ET.Element:
    text = draw_flow_svg(rows, anchors or {})
    named = f'<div xmlns="http://www.w3.org/2000/svg">{text}</div>'
    return ET.fromstring(named)  # noqa: S314  our own text


def find(svg: ET.Element, tag: str, kind: str) -> list[ET.Element]:
    return [element for element in svg.iter(f"{SVG}{tag}") if element.get("class") == kind]
