"""Draw the distance between two runs, call by call, as SVG text; names are escaped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.charts import svg
from hookcli.render.charts.axes import find_decades

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.distance.comparison import DiffRow

_TOP, _HEIGHT, _EDGE = 30, 200, 18
_BASE = _TOP + _HEIGHT + 2 * _EDGE
_CROSS, _EQUAL = "M-4,-4L4,4M-4,4L4,-4", "M-4,3H4"


def draw_distances(rows: Sequence[DiffRow], anchors: Mapping[int, str]) -> str:
    """Return an SVG chart of the relative L2 and the tolerance of every call.

    The calls are in the order in which they complete. If there is only one call, or if every
    relative L2 is zero or unknown, return an empty text. ``anchors`` maps the rank of a call to the
    call's anchor on the page.
    """
    rows = sorted(rows, key=lambda row: row.order)
    if len(rows) == 1 or not any(row.rel_l2 for row in rows):
        return ""
    places, step = svg.space_out(len(rows))
    parts = [_legend(rows), _distances(rows, places, step)]
    calls = [(row.call_id, _title(row), anchors[row.rank]) for row in rows]
    return svg.drawing_of_calls(
        "Distance over depth", "depth apart", parts, base=_BASE, calls=calls
    )


def _distances(rows: Sequence[DiffRow], places: Sequence[float], step: float) -> str:
    tolerances = [_limit(row) for row in rows]
    known = [value for row in rows if (value := _on_axis(row.rel_l2))]
    low, high = find_decades([*known, *filter(None, tolerances)])

    def at(value: float) -> float:
        return _TOP + _EDGE + (high - math.log10(value)) / (high - low) * _HEIGHT

    parts = [svg.decades(low, high, lambda exponent: at(10.0**exponent))]
    for x, tolerance in zip(places, tolerances, strict=True):
        if tolerance:
            y = at(tolerance)
            parts.append(
                f'<line x1="{x - step / 2:.1f}" x2="{x + step / 2:.1f}" '
                f'y1="{y:.1f}" y2="{y:.1f}" class="allowed"/>'
            )
    radius = 3.2 if len(rows) < 100 else 2
    for row, x in zip(rows, places, strict=True):
        kind = "holds" if row.holds else "differs"
        if value := _on_axis(row.rel_l2):
            parts.append(f'<circle cx="{x:.1f}" cy="{at(value):.1f}" r="{radius}" class="{kind}"/>')
        elif row.rel_l2 is not None or not row.holds:
            equal = row.rel_l2 == 0 and row.holds
            shape, y = (_EQUAL, _BASE - 6) if equal else (_CROSS, _TOP + 8)
            parts.append(
                f'<path d="{shape}" transform="translate({x:.1f} {y})" class="mark {kind}"/>'
            )
    return "".join(parts)


def _legend(rows: Sequence[DiffRow]) -> str:
    """Return the legend, with only the shapes that the chart of ``rows`` uses."""
    entries = [
        ('<circle r="3.2" class="differs"/>', "differs", any(not row.holds for row in rows)),
        ('<circle r="3.2" class="holds"/>', "holds", any(row.holds and row.rel_l2 for row in rows)),
        (f'<path d="{_EQUAL}" class="mark holds"/>', "equal", any(row.rel_l2 == 0 for row in rows)),
        (
            f'<path d="{_CROSS}" class="mark differs"/>',
            "no distance",
            any(not row.holds and not _on_axis(row.rel_l2) for row in rows),
        ),
        (
            '<line x1="-9" x2="9" y1="0" y2="0" class="allowed"/>',
            "tolerance",
            any(_limit(row) for row in rows),
        ),
    ]
    heading = f'<text x="{svg.LEFT}" y="14">relative L2 of the difference, call by call</text>'
    present = [(shape, text) for shape, text, is_there in entries if is_there]
    return svg.legend(heading, 270, present)


def _limit(row: DiffRow) -> float | None:
    """Return the tolerance of a call's relative L2.

    Return None if another metric decides, or if a logarithmic axis cannot show the tolerance.
    """
    return _on_axis(row.tolerance) if row.metric == "rel-l2" else None


def _on_axis(value: float | None) -> float | None:
    """Return the value if a logarithmic axis can show the value, else None."""
    return value if value and math.isfinite(value) else None


def _title(row: DiffRow) -> str:
    """Return the tooltip of one call."""
    parts = [for_page(row.names)]
    if row.rel_l2 is not None:
        parts.append(f"relative L2 {row.rel_l2:.3g}")
    if row.reason:
        parts.append(for_page(row.reason))
    return "  ".join([*parts, "holds" if row.holds else "differs"])
