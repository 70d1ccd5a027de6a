"""Render the page of ``diff`` or ``compare`` with ``--pictures``; chart distances over depth."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.distance.culprits import blame_text
from hookcli.distance.verdict import first_text, list_notes, verdict_text
from hookcli.outside.escape import for_page, reversible
from hookcli.records.text import fact_text, figure_text, shape_text
from hookcli.render.draw import svg
from hookcli.render.draw.svg import find_decades
from hookcli.render.report.templates import assets, breakable, linked, make_environment, ours

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from jinja2 import Template

    from hookcli.distance.comparison import Comparison, DiffRow
    from hookcli.distance.culprits import Blame

_TOP, _HEIGHT, _EDGE = 30, 200, 18
_BASE = _TOP + _HEIGHT + 2 * _EDGE
_CROSS, _EQUAL = "M-4,-4L4,4M-4,4L4,-4", "M-4,3H4"
_SQUARE = "M-3,-3H3V3H-3Z"
_NARROWEST = 4.0  # the smallest width of the band of a culprit


@dataclass(frozen=True, slots=True)
class DiffPicture:
    row: DiffRow
    file: str  # relative to the folder of the page
    size: tuple[int, int]  # width and height, in pixels
    caption: tuple[str, ...]  # the lines below the picture
    alt: str  # a description of the picture for screen readers


def render_difference(title: str, comparison: Comparison, pictures: Sequence[DiffPicture]) -> str:
    blame = comparison.blame
    drawn = {picture.row.rank: f"call-{picture.row.rank}" for picture in pictures}
    anchors = {row.rank: drawn.get(row.rank, f"row-{row.rank}") for row in comparison.rows}
    return _compile_template().render(
        title=title,
        verdict=verdict_text(comparison),
        first=first_text(comparison),
        rows=sorted(comparison.rows, key=lambda row: row.order),
        blame="" if blame is None else blame_text(blame),
        culprits=() if blame is None else blame.ids,
        notes=tuple(list_notes(comparison)),
        comparison=comparison,
        pictures=pictures,
        a=reversible(comparison.a),
        b=reversible(comparison.b),
        drawn=drawn,
        anchors=anchors,
        link=linked,
        plot=ours(draw_distances(comparison.rows, anchors, blame)),
        style=assets("page.css", "diff.css"),
    )


@functools.cache
def _compile_template() -> Template:
    environment = make_environment(
        breakable=breakable, figure=figure_text, shape=shape_text, fact=fact_text
    )
    return environment.get_template("diff.html.j2")


def draw_distances(
    rows: Sequence[DiffRow], anchors: Mapping[int, str], blame: Blame | None = None
) -> str:
    # Without ``blame``, no own errors are drawn. ``anchors`` are by the rank of a call.
    rows = sorted(rows, key=lambda row: row.order)
    if len(rows) == 1 or not any(row.rel_l2 or row.own_rel_l2 for row in rows):
        return ""
    chart = svg.Chart(len(rows))
    parts, xs = chart.parts, chart.xs
    culprits = () if blame is None else blame.ids
    placed = list(zip(rows, xs, strict=True))
    radius = 3.2 if len(rows) < 100 else 2
    width = max(chart.step, _NARROWEST)
    parts += (
        f'<rect x="{x - width / 2:.1f}" y="{_TOP}" width="{width:.1f}" height="{_BASE - _TOP}" '
        'class="culprit"/>'
        for row, x in placed
        if row.call_id in culprits
    )
    at = _draw_axis(chart, rows)
    if blame is not None:
        inherited, own = [row.rel_l2 for row in rows], [row.own_rel_l2 for row in rows]
        parts += [_curve(inherited, xs, at, "inherited"), _curve(own, xs, at, "own")]
        for row, x in placed:
            parts.append(_own_error(row, x, at, 1.5 if row.call_id in culprits else radius / 3.2))
    for row, x in placed:
        verdict = "holds" if row.holds else "differs"
        kind = verdict if blame is None else "inherited"
        if value := _on_axis(row.rel_l2):
            parts.append(f'<circle cx="{x:.1f}" cy="{at(value):.1f}" r="{radius}" class="{kind}"/>')
        elif row.rel_l2 is not None or not row.holds:
            parts.append(_mark(x, kind, is_zero=row.rel_l2 == 0 and row.holds))
    calls = [(row.call_id, _title(row, culprits), anchors[row.rank]) for row in rows]
    drawn = chart.draw("Distance over depth", "depth apart", _BASE, calls)
    return _legend(rows, culprits, has_own=blame is not None) + drawn


def _own_error(row: DiffRow, x: float, at: Callable[[float], float], scale: float) -> str:
    if value := _on_axis(row.own_rel_l2):
        transform = f"translate({x:.1f} {at(value):.1f}) scale({scale:g})"
        return f'<path d="{_SQUARE}" transform="{transform}" class="own"/>'
    return "" if row.own_rel_l2 is None else _mark(x, "own", is_zero=row.own_rel_l2 == 0)


def _draw_axis(chart: svg.Chart, rows: Sequence[DiffRow]) -> Callable[[float], float]:
    tolerances = [_limit(row) for row in rows]
    errors = [error for row in rows for error in (row.rel_l2, row.own_rel_l2)]
    known = [value for error in errors if (value := _on_axis(error))]
    low, high = find_decades([*known, *filter(None, tolerances)])

    def at(value: float) -> float:
        return _TOP + _EDGE + (high - math.log10(value)) / (high - low) * _HEIGHT

    chart.caption(14, "relative L2 of the difference")
    chart.decades(low, high, lambda exponent: at(10.0**exponent))
    for x, tolerance in zip(chart.xs, tolerances, strict=True):
        if tolerance:
            y, half = at(tolerance), chart.step / 2
            ends = f'x1="{x - half:.1f}" x2="{x + half:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
            chart.parts.append(f'<line {ends} class="allowed"/>')
    return at


def _curve(
    values: Sequence[float | None], xs: Sequence[float], at: Callable[[float], float], kind: str
) -> str:
    path, pen = [], "M"
    for value, x in zip(values, xs, strict=True):
        if shown := _on_axis(value):
            path.append(f"{pen}{x:.1f},{at(shown):.1f}")
        pen = "L" if shown else "M"
    return f'<path d="{"".join(path)}" class="line {kind}"/>' if path else ""


def _mark(x: float, kind: str, *, is_zero: bool) -> str:
    """Return a mark: at the lower edge for the distance 0, or at the upper edge for no distance."""
    inner = 6 if kind == "own" else 0
    shape, y = (_EQUAL, _BASE - 6 - inner) if is_zero else (_CROSS, _TOP + 8 + 2 * inner)
    return f'<path d="{shape}" transform="translate({x:.1f} {y})" class="mark {kind}"/>'


def _legend(rows: Sequence[DiffRow], culprits: Collection[str], *, has_own: bool) -> str:
    distances, own = [row.rel_l2 for row in rows], [row.own_rel_l2 for row in rows]
    errors = [*distances, *own]
    is_beyond = any(row.rel_l2 is None and not row.holds for row in rows)
    is_beyond = is_beyond or any(each and not _on_axis(each) for each in errors)
    zero, cross = ("either", "either") if has_own else ("holds", "differs")
    line, dot = '<path d="M-9,0H9" class="line {}"/>', '<circle r="3.2" class="{}"/>'
    inherited = line.format("inherited") + dot.format("inherited")
    own_error = f'{line.format("own")}<path d="{_SQUARE}" class="own"/>'
    tolerance = '<line x1="-9" x2="9" y1="0" y2="0" class="allowed"/>'
    kinds = [
        (dot.format("differs"), "differs", any(not row.holds for row in rows)),
        (dot.format("holds"), "holds", any(row.holds and row.rel_l2 for row in rows)),
    ]
    if has_own:
        kinds = [
            (inherited, "inherited", any(map(_on_axis, distances))),
            (own_error, "own", any(map(_on_axis, own))),
        ]
    entries = [
        *kinds,
        (f'<path d="{_EQUAL}" class="mark {zero}"/>', "zero" if has_own else "equal", 0 in errors),
        (f'<path d="{_CROSS}" class="mark {cross}"/>', "no distance", is_beyond),
        (tolerance, "tolerance", any(map(_limit, rows))),
        ('<rect x="-4" y="-8" width="8" height="16" class="culprit"/>', "culprit", culprits),
    ]
    present = [(shape, text) for shape, text, is_there in entries if is_there]
    return svg.legend("depth apart", present)


def _limit(row: DiffRow) -> float | None:
    """Return the tolerance of a row's relative L2, or None if the chart draws no line for it."""
    return _on_axis(row.tolerance) if row.metric == "rel-l2" else None


def _on_axis(value: float | None) -> float | None:
    return value if value and math.isfinite(value) else None


def _title(row: DiffRow, culprits: Collection[str]) -> str:
    parts = [for_page(row.names)]
    if row.rel_l2 is not None:
        parts.append(f"relative L2 {row.rel_l2:.3g}")
    if row.own_rel_l2 is not None:
        parts.append(f"own {row.own_rel_l2:.3g}")
    if row.reason:
        parts.append(for_page(row.reason))
    parts.append("holds" if row.holds else "differs")
    return "  ".join([*parts, *(["culprit"] if row.call_id in culprits else [])])
