"""Draw statistics over depth and small histograms as SVG text; names are escaped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.draw import svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.rows import LayerRow

_FEW = 3  # with fewer layers, vertical lines also show each standard deviation
_BAND, _BARS, _GAP, _LINE = 180, 60, 26, 18  # pixels: heights of plots, of gaps and of text lines


@dataclass(frozen=True, slots=True)
class DepthPoint:
    """The statistics of a module's output, and the module's number of parameters."""

    call_id: str
    mean: float
    std: float
    zeros: float  # the share of zeros, 0 to 1
    params: int


def list_depth_points(rows: Iterable[LayerRow]) -> list[DepthPoint]:
    """Return a point for each output with a mean and a standard deviation."""
    return [
        DepthPoint(
            row.call_id, row.mean, row.std, zeros=row.zero_fraction or 0.0, params=row.params
        )
        for row in rows
        if row.side == "output" and row.mean is not None and row.std is not None
    ]


def draw_depth(rows: Iterable[LayerRow], anchors: dict[str, str]) -> str:
    """Return an SVG drawing of statistics over depth; empty if no output has statistics."""
    points = list_depth_points(rows)
    if not points:
        return ""
    places, step = svg.space_out(len(points))
    zeros = [point.zeros for point in points]
    params = [float(point.params) for point in points]
    most = max(params)
    parts, height = [], 0
    if any(point.mean or point.std for point in points):
        parts.append(_band(points, places))
        height = _BAND + _GAP
    else:
        parts.append(svg.caption(_LINE, "all values of these layers are zero"))
        height = _LINE + _GAP
    for values, scale, label, caption, without in (
        (zeros, 1.0, "100", "zeros, % of values", "no value of these layers is exactly zero"),
        (params, most, _short(most), "parameters", "these layers have no parameters"),
    ):
        if any(values):
            parts.append(
                _bars(values, places, step, top=height, scale=scale, label=label, caption=caption)
            )
            height += _BARS + _GAP
        else:
            parts.append(svg.caption(height + _LINE - _GAP // 2, without))
            height += _LINE
    for point, x in zip(points, places, strict=True):
        title = f"{for_page(point.call_id)}  mean {point.mean:.4g}  std {point.std:.4g}"
        parts.append(svg.column(x, step, height - _GAP, title=title, anchor=anchors[point.call_id]))
    return svg.drawing("Statistics over depth", "depth", height, parts)


def draw_histogram(counts: Sequence[int]) -> str:
    """Return a histogram as SVG text; empty if there are no values."""
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


def _band(points: Sequence[DepthPoint], places: Sequence[float]) -> str:
    """Draw each mean and a band of one standard deviation, linear near zero, else logarithmic."""
    spreads = sorted(point.std for point in points)
    unit = spreads[len(spreads) // 2] or 1.0
    lows = [math.asinh((point.mean - point.std) / unit) for point in points]
    highs = [math.asinh((point.mean + point.std) / unit) for point in points]
    middles = [math.asinh(point.mean / unit) for point in points]
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
        svg.tick(f"{at(math.asinh(value / unit)) + 4:.1f}", f"{value:.3g}")
        for value in (math.sinh(bottom) * unit, 0.0, math.sinh(top) * unit)
    )
    return (
        f'{svg.rule(f"{at(0):.1f}")}<polygon points="{" ".join(edge)}" class="band"/>'
        f'<polyline points="{line}" class="line"/>{bars}{dots}{ticks}'
        f"{svg.caption(_BAND + 12, 'mean, with one spread up and down')}"
    )


def _bars(
    values: Sequence[float],
    places: Sequence[float],
    step: float,
    top: int,
    scale: float,
    label: str,
    caption: str,
) -> str:
    """Draw one bar per layer, from zero to ``scale``, which is at the y coordinate ``top``."""
    bars = "".join(
        svg.bar(x, top + _BARS * (1 - value / scale), step, _BARS * value / scale)
        for x, value in zip(places, values, strict=True)
        if value
    )
    base = svg.rule(f"{top + _BARS}")
    return base + bars + svg.tick(f"{top + 10}", label) + svg.caption(top + _BARS + 14, caption)


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"
