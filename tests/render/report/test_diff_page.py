"""The page of a comparison with culprits: its table, its headings, and what it says above them."""

from __future__ import annotations

import re
from dataclasses import replace

from hookcli.distance.comparison import Comparison
from hookcli.distance.tolerance import Tolerance
from hookcli.render.report.diff_page import DiffPicture, render_difference
from tests.render.report.test_distance_svg import blame_of, row_of

ROWS = (row_of(1, 0.25, 0.25), row_of(2, 0.5, 0.125))


def render(*culprits, blames=True, rows=ROWS):
    blame = blame_of(*culprits) if blames else None
    comparison = Comparison("a", "b", Tolerance(), rows, images=("cat",), blame=blame)
    pictures = [DiffPicture(rows[1], "01_call2.png", (9, 9), ("caption",), "alt")]
    return render_difference("net", comparison, pictures)


def cells(page):
    """The texts of the cells of the table of calls, line by line."""
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


def test_the_page_explains_both_errors():
    assert "Inherited: the distance as B ran." in render()
    assert "Inherited: the distance as B ran." not in render(blames=False)


def test_the_names_of_culprits_are_escaped():
    rows = (ROWS[0], replace(ROWS[1], call_id="<b>", other_call_id="<b>"))
    page = render("<b>", rows=rows)
    assert "1 culprit: &lt;b&gt; (Conv2d)" in page
    assert "<b>" not in page


def test_without_blame_there_is_no_column_of_own_errors():
    rows = tuple(replace(row, own_rel_l2=None) for row in ROWS)
    page = render(blames=False, rows=rows)
    assert "own L2" not in page
    assert [line[4:6] for line in cells(page)] == [["0.25", "0.25"], ["0.5", "0.5"]]
