"""How far two runs are apart, call by call, as SVG text; names in it are escaped."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from hookcli.escape import for_page
from hookcli.render.charts.gradient_flow import find_decades, list_ticks, power_of_ten, short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hookcli.distance.comparison import DiffRow

_WIDTH, _LEFT, _RIGHT = 960, 56, 12
_TOP, _HEIGHT, _EDGE = 30, 200, 18
_BASE = _TOP + _HEIGHT + 2 * _EDGE
_LABEL, _LONGEST = 13, 24  # pixels between names, and letters of a name
_CROSS, _EQUAL = "M-4,-4L4,4M-4,4L4,-4", "M-4,3H4"


def draw_distances(rows: Sequence[DiffRow], anchors: Mapping[int, str]) -> str:
    """The relative L2 of every call in the order in which they complete, and the tolerance; empty without any.

    Args:
        rows: one a call, in any order.
        anchors: where the page tells of a call, by its rank.
    """
    rows = sorted(rows, key=lambda row: row.order)
    if not any(row.rel_l2 is not None for row in rows):
        return ""
    step = (_WIDTH - _LEFT - _RIGHT) / len(rows)
    places = [_LEFT + step * (index + 0.5) for index in range(len(rows))]
    names = [short_name(row.call_id, _LONGEST) for row in rows]
    height = _BASE + 16 + 7 * max(map(len, names))
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Distance over depth" class="depth apart">',
        _legend(rows),
        _distances(rows, places, step),
        _names(names, places),
    ]
    for row, x in zip(rows, places, strict=True):
        parts.append(
            f'<a href="#{anchors[row.rank]}"><rect x="{x - step / 2:.1f}" y="0" width="{step:.1f}" '
            f'height="{_BASE}" class="hit"/><title>{escape(_title(row))}</title></a>'
        )
    return "".join([*parts, "</svg>"])


def _distances(rows: Sequence[DiffRow], places: Sequence[float], step: float) -> str:
    tolerances = [_limit(row) for row in rows]
    known = [value for row in rows if (value := _shown(row.rel_l2))]
    low, high = find_decades([*known, *filter(None, tolerances)])

    def at(value: float) -> float:
        return _TOP + _EDGE + (high - math.log10(value)) / (high - low) * _HEIGHT

    parts = [_decades(low, high, at)]
    for x, tolerance in zip(places, tolerances, strict=True):
        if tolerance:
            y = at(tolerance)
            parts.append(
                f'<line x1="{x - step / 2:.1f}" x2="{x + step / 2:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="allowed"/>'
            )
    radius = 3.2 if len(rows) < 100 else 2
    for row, x in zip(rows, places, strict=True):
        kind = "holds" if row.holds else "differs"
        if value := _shown(row.rel_l2):
            parts.append(f'<circle cx="{x:.1f}" cy="{at(value):.1f}" r="{radius}" class="{kind}"/>')
        elif (
            row.rel_l2 is not None or not row.holds
        ):  # nothing was measured, and nothing is missing
            equal = row.rel_l2 == 0 and row.holds
            shape, y = (_EQUAL, _BASE - 6) if equal else (_CROSS, _TOP + 8)
            parts.append(
                f'<path d="{shape}" transform="translate({x:.1f} {y})" class="mark {kind}"/>'
            )
    return "".join(parts)


def _decades(low: int, high: int, at: Callable[[float], float]) -> str:
    return "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at(10.0**tick):.1f}" y2="{at(10.0**tick):.1f}" class="zero"/>'
        f'<text x="{_LEFT - 6}" y="{at(10.0**tick) + 4:.1f}" class="tick">{power_of_ten(tick)}</text>'
        for tick in list_ticks(low, high)
    )


def _legend(rows: Sequence[DiffRow]) -> str:
    """What the shapes stand for: those that are there."""
    entries = [
        ('<circle r="3.2" class="differs"/>', "differs", any(not row.holds for row in rows)),
        ('<circle r="3.2" class="holds"/>', "holds", any(row.holds and row.rel_l2 for row in rows)),
        (f'<path d="{_EQUAL}" class="mark holds"/>', "equal", any(row.rel_l2 == 0 for row in rows)),
        (
            f'<path d="{_CROSS}" class="mark differs"/>', "no distance",
            any(not row.holds and not _shown(row.rel_l2) for row in rows),
        ),
        (
            '<line x1="-9" x2="9" y1="0" y2="0" class="allowed"/>', "tolerance",
            any(_limit(row) for row in rows),
        ),
    ]  # fmt: skip
    parts = [f'<text x="{_LEFT}" y="14">relative L2 of the difference, call by call</text>']
    x = _LEFT + 270
    for shape, text, is_there in entries:
        if is_there:
            parts.append(
                f'<g transform="translate({x} 10)">{shape}<text x="13" y="4">{text}</text></g>'
            )
            x += 44 + 6 * len(text)
    return "".join(parts)


def _names(names: Sequence[str], places: Sequence[float]) -> str:
    """The name of every call, or of every n-th where they would run into each other."""
    step = -(-len(names) * _LABEL // (_WIDTH - _LEFT - _RIGHT))
    return "".join(
        f'<text transform="translate({x + 4:.1f} {_BASE + 8}) rotate(-90)" class="tick">{escape(name)}</text>'
        for x, name in list(zip(places, names, strict=True))[::step]
    )


def _limit(row: DiffRow) -> float | None:
    """What is tolerated of the relative L2, where that decides and there is a limit to draw."""
    return _shown(row.tolerance) if row.metric == "rel-l2" else None


def _shown(value: float | None) -> float | None:
    """What a logarithmic axis can take, or None."""
    return value if value and math.isfinite(value) else None


def _title(row: DiffRow) -> str:
    """One call, as the mouse sees it."""
    parts = [for_page(row.names)]
    if row.rel_l2 is not None:
        parts.append(f"relative L2 {row.rel_l2:.3g}")
    if row.reason:
        parts.append(for_page(row.reason))
    return "  ".join([*parts, "holds" if row.holds else "differs"])
