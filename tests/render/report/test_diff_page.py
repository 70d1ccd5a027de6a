"""The page of a comparison with culprits: its table, its headings, and what it says above them."""

from __future__ import annotations

import re
from dataclasses import replace

from hookcli.distance.comparison import Comparison, DiffRow
from hookcli.distance.culprits import Blame, OwnError
from hookcli.distance.tolerance import Tolerance
from hookcli.render.report.diff_page import DiffPicture, draw_distances, render_difference


def row_of(order, rel_l2, own=None, **other):
    values = {
        "rank": order, "order": order, "call_id": f"call{order}", "other_call_id": f"call{order}",
        "module_type": "Conv2d", "holds": False, "reason": "", "metric": "max-abs",
        "tolerance": 1.0, "rel_l2": rel_l2, "max_abs": rel_l2, "mean_abs": rel_l2, "cosine": 1.0,
        "own_rel_l2": own, "shape": (1, 3), "other_shape": (1, 3), "dtype": "float32",
        "other_dtype": "float32", "source": "tensors", "image": "cat", "images": 1,
        "failed_images": 1,
    }  # fmt: skip
    return DiffRow(**(values | other))


def blame_of(*culprits):
    found = tuple(OwnError(call_id, "Conv2d", 1.0, 1e-7) for call_id in culprits)
    return Blame(found, (), None, is_rounding=False, dtype="float32")


ROWS = (row_of(1, 0.25, 0.25), row_of(2, 0.5, 0.125))


def render(*culprits, blames=True, rows=ROWS):
    blame = blame_of(*culprits) if blames else None
    comparison = Comparison("a", "b", Tolerance(), rows, images=("cat",), blame=blame)
    pictures = [DiffPicture(rows[1], "01_call2.png", (9, 9), ("caption",), "alt")]
    return render_difference("net", comparison, pictures)


def cells(page):
    return [
        [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", line)]
        for line in re.findall(r'<tr id="row-.*?</tr>', page, re.DOTALL)
    ]


def test_own_errors_are_a_column_behind_the_distances():
    page = render("call1")
    assert re.findall(r'<th scope="col" class="number">([^<]*)</th>', page)[:3] == [
        "#",
        "rel L2",
        "own L2",
    ]
    assert [line[4:6] for line in cells(page)] == [["0.25", "0.25"], ["0.5", "0.125"]]


def test_culprits_are_marked_in_the_table_and_above_their_pictures():
    assert [line[1] for line in cells(render("call1"))] == ["call1 culprit", "call2"]
    assert "Conv2d 1x3, a culprit</span></h3>" not in render("call1")
    assert "Conv2d 1x3, a culprit</span></h3>" in render("call2")


def test_the_names_of_culprits_are_escaped():
    rows = (ROWS[0], replace(ROWS[1], call_id="<b>", other_call_id="<b>"))
    page = render("<b>", rows=rows)
    assert "1 culprit: &lt;b&gt; (Conv2d)" in page
    assert "<b>" not in page


INF = float("inf")


def draw(*rows, culprits=()):
    text = draw_distances(rows, {row.rank: "here" for row in rows}, blame_of(*culprits))
    legend = re.findall(r"</svg> ([^<]*)</span>", text)
    return text[text.index("</p>") :], legend


def test_both_errors_are_curves_of_their_own_class():
    """The columns of two calls are 136 wide, with their middles at 124 and 260."""
    chart, legend = draw(row_of(1, 1e-4, 1e-4), row_of(2, 1e-2, 1e-4))
    assert '<path d="M124.0,198.0L260.0,98.0" class="line inherited"/>' in chart
    assert '<path d="M124.0,198.0L260.0,198.0" class="line own"/>' in chart
    assert re.findall(
        r'<circle cx="([\d.]+)" cy="([\d.]+)" r="3.2" class="inherited"/>', chart
    ) == [
        ("124.0", "198.0"),
        ("260.0", "98.0"),
    ]
    assert re.findall(r'translate\(([\d.]+) ([\d.]+)\) scale\(1\)" class="own"/>', chart) == [
        ("124.0", "198.0"),
        ("260.0", "198.0"),
    ]
    assert legend == ["inherited", "own"]


def test_a_culprit_has_a_band_and_a_larger_mark():
    chart, legend = draw(row_of(1, 1e-4, 1e-4), row_of(2, 1e-2, 1e-2), culprits=["call2"])
    assert re.findall(
        r'<rect x="([\d.]+)" y="30" width="([\d.]+)" height="236" class="c', chart
    ) == [("192.0", "136.0")]
    assert 'translate(260.0 98.0) scale(1.5)" class="own"/>' in chart
    assert legend[-1] == "culprit"
    assert "relative L2 0.01  own 0.01  differs  culprit" in chart
    assert "relative L2 0.0001  own 0.0001  differs<" in chart


def test_zeros_are_marks_below_the_axis_and_gaps_of_the_curve():
    chart, legend = draw(
        row_of(1, 1e-2, 1e-4), row_of(2, 0.0, 0.0, holds=True), row_of(3, 1e-2, 1e-4)
    )
    assert re.findall(r"translate\(192.0 (\d+)\)\" class=\"mark (\w+)\"", chart) == [
        ("254", "own"),
        ("260", "inherited"),
    ]
    assert chart.count("L282.7") == 0
    assert legend == ["inherited", "own", "zero"]


def test_what_has_no_distance_is_a_cross():
    """The first differs in shape, and the second is infinite in B; the third is only in A."""
    chart, legend = draw(
        row_of(1, None, INF),
        row_of(2, INF, INF),
        row_of(3, None, None, reason="only in A"),
        row_of(4, 1e-2, 1e-4),
    )
    crosses = re.findall(r"translate\(([\d.]+) (\d+)\)\" class=\"mark (\w+)\"", chart)
    assert crosses == [
        ("90.0", "50", "own"),
        ("158.0", "50", "own"),
        ("90.0", "38", "inherited"),
        ("158.0", "38", "inherited"),
        ("226.0", "38", "inherited"),
    ]
    assert legend == ["inherited", "own", "no distance"]


def test_without_blame_calls_have_the_colours_of_the_verdict():
    rows = [row_of(1, 1e-4, holds=True), row_of(2, 1e-2)]
    text = draw_distances(rows, {1: "here", 2: "here"})
    assert re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="3.2" class="(\w+)"/>', text) == [
        ("124.0", "198.0", "holds"),
        ("260.0", "98.0", "differs"),
    ]
    assert "line" not in re.findall(r'class="([^"]*)"', text)
