"""The page of ``hookcli layers --measure``: bars of leaves, and of blocks with own time."""

from __future__ import annotations

from dataclasses import replace

from hookcli.records.rows import Measurement, SurveyRow
from hookcli.render.report.costs_page import draw_costs, render_costs

MEASURED = Measurement(
    device="cpu", dtype="float32", batch_size=1, threads=1, seconds=0.01, unscaled_seconds=0.01,
    backward_seconds=None, hook_seconds=1e-5, peak_mb=8.0, peak_call="a.b", weights_mb=2.0,
    best_flops_per_second=1e11, best_bytes_per_second=1e10,
)  # fmt: skip


def row_of(order, path, own, bound=""):
    return SurveyRow(
        order, path or "(model)", path, "Net<b>", (1,), "", 0, 0.0, 0, 1, (), seconds=own,
        own_seconds=own, batch_output_mb=1.0, workspace_mb=0.0, peak_mb=2.0 * order, bound=bound,
    )  # fmt: skip


ROWS = [
    row_of(4, "a.c", 0.004),
    row_of(1, "", 0.0),
    row_of(2, "a", 0.001),
    row_of(3, "a.b", 0.005, "memory"),
]


def test_bars_are_in_running_order_and_leave_out_blocks_without_time_of_their_own():
    svg = draw_costs(ROWS, MEASURED)
    titles = [part.partition("</title>")[0].split()[0] for part in svg.split("<title>")[1:]]
    assert titles == ["a", "a.b", "a.c"]
    assert svg.count('class="bar memory"') == 2  # a bar, and the legend
    assert svg.count('class="peak"') == 1


def test_the_page_escapes_names_and_shows_the_backward_pass_if_there_is_one():
    page = render_costs("x", ROWS, MEASURED, ["<i>"])
    assert "Net<b>" not in page
    assert "&lt;i&gt;" in page
    assert "backward ms" not in page
    rows = [replace(each, backward_seconds=0.001) for each in ROWS]
    page = render_costs("x", rows, replace(MEASURED, backward_seconds=0.003), [])
    assert "backward pass of leaves, ms" in page
