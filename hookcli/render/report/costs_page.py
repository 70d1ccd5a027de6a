"""Render the page of ``layers`` with measured costs; chart time and memory over depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.draw import svg
from hookcli.render.report.templates import assets, breakable, make_environment, ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hookcli.records.rows import Measurement, SurveyRow

_ABOVE, _BARS, _TOTAL, _GAP = 24, 110, 130, 14  # pixels: of captions, of bars, of the running total
_LEAST = 0.01  # the share of the time from which a block's own time has a bar
_BOUNDS = {"arithmetic": "bound by arithmetic", "memory": "bound by memory", "": "not known"}


def render_costs(
    title: str, rows: Sequence[SurveyRow], measured: Measurement, lines: Sequence[str]
) -> str:
    calls = [row for row in rows if row.seconds is not None]
    anchors = {row.call_id: f"row-{index}" for index, row in enumerate(calls)}
    template = make_environment(breakable=breakable).get_template("layers.html.j2")
    return template.render(
        title=title,
        rows=calls,
        anchors=anchors,
        measured=measured,
        lines=lines,
        plot=ours(draw_costs(calls, measured, anchors)),
        style=assets("page.css", "layers.css"),
    )


def draw_costs(
    rows: Sequence[SurveyRow], measured: Measurement, anchors: dict[str, str] | None = None
) -> str:
    """Draw bars of the leaves, and of blocks that take much time themselves, in running order."""
    blocks = _list_blocks(rows)
    least = _LEAST * measured.seconds
    ran = sorted((row for row in rows if row.order), key=lambda row: row.order or 0)
    shown = [r for r in ran if r.module_path not in blocks or (r.own_seconds or 0) > least]
    if not shown:
        return ""
    chart = svg.Chart(len(shown))
    base = _draw_bars(chart, shown, "own time, ms", 0, lambda row: 1e3 * (row.own_seconds or 0.0))
    if measured.backward_seconds is not None:
        back = {row.call_id: row.backward_seconds for row in shown if row.module_path not in blocks}
        caption = "backward pass of leaves, ms"
        base = _draw_bars(
            chart, shown, caption, base + _GAP, lambda row: 1e3 * (back.get(row.call_id) or 0.0)
        )
    base = _draw_sum(chart, shown, measured, base + _GAP)
    best = f"GFLOP/s (best on this machine: {measured.best_flops_per_second / 1e9:,.0f})"
    if any(row.flops_per_second for row in shown):
        base = _draw_bars(
            chart, shown, best, base + _GAP, lambda row: (row.flops_per_second or 0.0) / 1e9
        )
    calls = [(row.call_id, _title(row), (anchors or {}).get(row.call_id)) for row in shown]
    kinds = {row.bound for row in shown}
    square = '<rect x="-5" y="-5" width="10" height="10" class="bar {}"/>'
    entries = [(square.format(kind), text) for kind, text in _BOUNDS.items() if kind in kinds]
    drawn = chart.draw("Time and memory over depth", "depth costs", base, calls)
    return svg.legend("depth costs", entries) + drawn


def _list_blocks(rows: Iterable[SurveyRow]) -> set[str]:
    """Return the paths of modules that have parts among ``rows``."""
    parts = (row.module_path.split(".") for row in rows if row.module_path)
    return {".".join(names[:end]) for names in parts for end in range(len(names))}


def _draw_bars(
    chart: svg.Chart,
    rows: Sequence[SurveyRow],
    caption: str,
    top: int,
    value_of: Callable[[SurveyRow], float],
) -> int:
    values = [*map(value_of, rows)]
    base, most = top + _ABOVE + _BARS, max(values) or 1.0
    chart.caption(top + 14, caption)
    chart.rule(base - _BARS, f"{most:.3g}")
    chart.rule(base, "0")
    for x, value, row in zip(chart.xs, values, rows, strict=True):
        if value > 0:
            chart.bar(x, base - _BARS * value / most, base, row.bound)
    return base


def _draw_sum(chart: svg.Chart, rows: Sequence[SurveyRow], measured: Measurement, top: int) -> int:
    base, most = top + _ABOVE + _TOTAL, measured.peak_mb or 1.0

    def at(value: float) -> float:
        return base - _TOTAL * min(1.0, value / most)

    chart.caption(top + 14, "running total, MB; dashed: weights")
    for value in (0.0, most):
        chart.rule(at(value), f"{value:.4g}")
    ends = [(x, at(measured.weights_mb)) for x in (svg.LEFT, chart.xs[-1])]
    chart.parts.append(f'<polyline points="{svg.join(ends)}" class="weights"/>')
    points = [(x, at(row.peak_mb or 0.0)) for x, row in zip(chart.xs, rows, strict=True)]
    area = [(chart.xs[0], base), *points, (chart.xs[-1], base)]
    chart.parts.append(f'<polygon points="{svg.join(area)}" class="area"/>')
    chart.parts.append(f'<polyline points="{svg.join(points)}" class="line"/>')
    for (x, y), row in zip(points, rows, strict=True):
        if row.call_id.partition("[")[0] == measured.peak_call:
            chart.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="peak"/>')
    return base


def _title(row: SurveyRow) -> str:
    parts = [f"{for_page(row.call_id)} ({for_page(row.module_type)})"]
    parts.append(f"{1e3 * (row.own_seconds or 0.0):.3g} ms")
    if row.backward_seconds is not None:
        parts.append(f"backward {1e3 * row.backward_seconds:.3g} ms")
    parts.append(f"running total {row.peak_mb:,.1f} MB")
    if row.flops_per_second:
        parts.append(f"{row.flops_per_second / 1e9:,.1f} GFLOP/s")
    return "  ".join([*parts, *([_BOUNDS[row.bound]] if row.bound else [])])
