"""Small drawings of numbers as SVG text; names in them are escaped."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from hookcli.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW = 3  # layers that make no band
_WIDTH, _LEFT, _RIGHT = 960, 56, 12
_BAND, _SHARE, _PARAMS, _GAP = 180, 60, 60, 26


def draw_depth(rows: Sequence[dict[str, Any]], anchors: dict[str, str]) -> str:
    """Mean with the spread around it, zero fraction and parameters of every layer, in the order of calls."""
    rows = [row for row in rows if row["mean"] is not None and row["side"] == "output"]
    if not rows:
        return ""
    step = (_WIDTH - _LEFT - _RIGHT) / len(rows)
    places = [_LEFT + step * (index + 0.5) for index in range(len(rows))]
    height = _BAND + _SHARE + _PARAMS + 3 * _GAP
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Statistics over depth" class="depth">',
        _band(rows, places),
        _bars(rows, places, step, "zero_fraction", _BAND + _GAP, "zeros, % of values"),
        _bars(rows, places, step, "params", _BAND + _SHARE + 2 * _GAP, "parameters"),
    ]
    for row, x in zip(rows, places, strict=True):
        title = f"{for_page(row['call_id'])}  mean {row['mean']:.4g}  std {row['std']:.4g}"
        parts.append(
            f'<a href="#{anchors[row["call_id"]]}"><rect x="{x - step / 2:.1f}" y="0" '
            f'width="{step:.1f}" height="{height - _GAP}" class="hit"/><title>{escape(title)}</title></a>'
        )
    return "".join([*parts, "</svg>"])


def draw_histogram(counts: Sequence[int]) -> str:
    """The distribution of a sample of the values, from the smallest to the largest."""
    if not counts or not max(counts):
        return ""
    width = 96 / len(counts)
    bars = "".join(
        f'<rect x="{index * width:.1f}" y="{24 - 24 * count / max(counts):.1f}" '
        f'width="{width - 0.5:.1f}" height="{24 * count / max(counts):.1f}"/>'
        for index, count in enumerate(counts)
        if count
    )
    return f'<svg viewBox="0 0 96 24" class="hist" aria-hidden="true">{bars}</svg>'


def _band(rows: Sequence[dict[str, Any]], places: Sequence[float]) -> str:
    """Mean and one spread up and down, on a scale that is straight near zero and logarithmic far off."""
    spreads = sorted(row["std"] for row in rows)
    unit = spreads[len(spreads) // 2] or 1.0
    lows = [math.asinh((row["mean"] - row["std"]) / unit) for row in rows]
    highs = [math.asinh((row["mean"] + row["std"]) / unit) for row in rows]
    middles = [math.asinh(row["mean"] / unit) for row in rows]
    bottom, top = min(*lows, 0.0), max(*highs, 0.0)
    span = (top - bottom) or 1.0

    def at(value: float) -> float:
        return 8 + (top - value) / span * (_BAND - 16)

    edge = [f"{x:.1f},{at(y):.1f}" for x, y in zip(places, highs, strict=True)]
    edge += [f"{x:.1f},{at(y):.1f}" for x, y in reversed(list(zip(places, lows, strict=True)))]
    line = " ".join(f"{x:.1f},{at(y):.1f}" for x, y in zip(places, middles, strict=True))
    bars = "".join(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{at(low):.1f}" y2="{at(high):.1f}" class="line"/>'
        for x, low, high in zip(places, lows, highs, strict=True)
        if len(places) < _FEW
    )
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{at(y):.1f}" r="2.5"/>'
        for x, y in zip(places, middles, strict=True)
    )
    ticks = "".join(
        f'<text x="{_LEFT - 6}" y="{at(math.asinh(value / unit)) + 4:.1f}" class="tick">{value:.3g}</text>'
        for value in (math.sinh(bottom) * unit, 0.0, math.sinh(top) * unit)
    )
    zero = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at(0):.1f}" y2="{at(0):.1f}" class="zero"/>'
    caption = f'<text x="{_LEFT}" y="{_BAND + 12}" class="caption">mean, with one spread up and down</text>'
    return f'{zero}<polygon points="{" ".join(edge)}" class="band"/><polyline points="{line}" class="line"/>{bars}{dots}{ticks}{caption}'


def _bars(
    rows: Sequence[dict[str, Any]],
    places: Sequence[float],
    step: float,
    name: str,
    top: int,
    caption: str,
) -> str:
    """One bar a layer, from zero to the largest."""
    values = [float(row[name] or 0) for row in rows]
    largest = max(values)
    scale = (1.0 if name == "zero_fraction" else largest) or 1.0
    width = min(step * 0.7, 40.0)
    bars = "".join(
        f'<rect x="{x - width / 2:.1f}" y="{top + _SHARE * (1 - value / scale):.1f}" '
        f'width="{width:.1f}" height="{_SHARE * value / scale:.1f}" class="bar"/>'
        for x, value in zip(places, values, strict=True)
        if value
    )
    label = "100" if name == "zero_fraction" else _short(scale)
    tick = f'<text x="{_LEFT - 6}" y="{top + 10}" class="tick">{label}</text>'
    base = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{top + _SHARE}" y2="{top + _SHARE}" class="zero"/>'
    text = f'<text x="{_LEFT}" y="{top + _SHARE + 14}" class="caption">{caption}</text>'
    return base + bars + tick + text


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"
