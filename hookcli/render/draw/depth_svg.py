"""Draw the page's charts over depth (statistics, gradients) and its histograms, as SVG text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.draw import svg
from hookcli.render.draw.gradient_flow import MARKS, RATIO, list_flow_layers
from hookcli.render.draw.svg import find_decades

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.rows import LayerRow
    from hookcli.render.draw.gradient_flow import FlowLayer

_FEW = 3  # with fewer layers, vertical lines also show each standard deviation
_BAND, _BARS, _GAP, _LINE = 180, 60, 26, 18  # pixels: heights of plots, of gaps and of text lines
_TOP, _EDGE, _NORMS, _BETWEEN, _RATIOS = 24, 16, 200, 30, 80
_MANY = 100  # with this many layers or more, dots are smaller
_BOTTOM = _TOP + 2 * _EDGE + _NORMS  # the lower edge of the upper plot
_BASE = _BOTTOM + _BETWEEN + _RATIOS  # the lower edge of the lower plot
_SHAPES = {"broken": "M-4,-4H4L0,4Z", "none": "M-4,-4L4,4M-4,4L4,-4", "zero": "M-4,4H4L0,-4Z"}


@dataclass(frozen=True, slots=True)
class DepthPoint:
    call_id: str
    mean: float
    std: float
    zeros: float  # the share of zeros, 0 to 1
    params: int


def list_depth_points(rows: Iterable[LayerRow]) -> list[DepthPoint]:
    return [
        DepthPoint(row.call_id, row.mean, row.std, row.zero_fraction or 0.0, row.params)
        for row in rows
        if row.side == "output" and row.mean is not None and row.std is not None
    ]


def draw_depth(rows: Iterable[LayerRow], anchors: dict[str, str]) -> str:
    points = list_depth_points(rows)
    xs, step = svg.space_out(len(points))
    zeros = [point.zeros for point in points]
    params = [float(point.params) for point in points]
    most = max(params)
    parts, height = [], 0
    if any(point.mean or point.std for point in points):
        parts.append(_band(points, xs))
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
                _bars(values, xs, step, top=height, scale=scale, label=label, caption=caption)
            )
            height += _BARS + _GAP
        else:
            parts.append(svg.caption(height + _LINE - _GAP // 2, without))
            height += _LINE
    for point, x in zip(points, xs, strict=True):
        title = f"{for_page(point.call_id)}  mean {point.mean:.4g}  std {point.std:.4g}"
        parts.append(svg.column(x, step, height - _GAP, title=title, anchor=anchors[point.call_id]))
    return svg.drawing("Statistics over depth", "depth", height, parts)


def draw_histogram(counts: Sequence[int]) -> str:
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


def _band(points: Sequence[DepthPoint], xs: Sequence[float]) -> str:
    """Draw means and a band of one standard deviation, on an asinh axis (linear near 0)."""
    spreads = sorted(point.std for point in points)
    unit = spreads[len(spreads) // 2] or 1.0
    lows = [math.asinh((point.mean - point.std) / unit) for point in points]
    highs = [math.asinh((point.mean + point.std) / unit) for point in points]
    middles = [math.asinh(point.mean / unit) for point in points]
    bottom, top = min(*lows, 0.0), max(*highs, 0.0)
    span = (top - bottom) or 1.0

    def at(value: float) -> float:
        return 8 + (top - value) / span * (_BAND - 16)

    edge = [f"{x:.1f},{at(y):.1f}" for x, y in zip(xs, highs, strict=True)]
    edge += [f"{x:.1f},{at(y):.1f}" for x, y in reversed(list(zip(xs, lows, strict=True)))]
    line = " ".join(f"{x:.1f},{at(y):.1f}" for x, y in zip(xs, middles, strict=True))
    bars = "".join(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{at(low):.1f}" y2="{at(high):.1f}" class="line"/>'
        for x, low, high in zip(xs, lows, highs, strict=True)
        if len(xs) < _FEW
    )
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{at(y):.1f}" r="2.5"/>' for x, y in zip(xs, middles, strict=True)
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
    xs: Sequence[float],
    step: float,
    top: int,
    scale: float,
    label: str,
    caption: str,
) -> str:
    bars = "".join(
        svg.bar(x, top + _BARS * (1 - value / scale), step, _BARS * value / scale)
        for x, value in zip(xs, values, strict=True)
        if value
    )
    base = svg.rule(f"{top + _BARS}")
    return base + bars + svg.tick(f"{top + 10}", label) + svg.caption(top + _BARS + 14, caption)


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def draw_flow_svg(rows: Sequence[LayerRow], anchors: dict[str, str]) -> str:
    layers = list_flow_layers(rows)
    xs, step = svg.space_out(len(layers))
    parts = [_legend(layers), _norms(layers, xs), _ratios(layers, xs, step)]
    calls = [(each.call_id, _title(each), anchors.get(each.call_id)) for each in layers]
    return svg.drawing_of_calls(
        "Gradients over depth", "depth flow", parts, base=_BASE, calls=calls
    )


def _norms(layers: Sequence[FlowLayer], xs: Sequence[float]) -> str:
    norms = [layer.norm for layer in layers]
    low, high = find_decades([n for layer in layers for n in (layer.norm, *layer.params) if n])

    def at(log: float) -> float:
        return _TOP + _EDGE + (high - log) / (high - low) * _NORMS

    points = [
        f"{x:.1f},{at(math.log10(n)):.1f}" if n else "|" for x, n in zip(xs, norms, strict=True)
    ]
    runs = [run.strip() for run in " ".join(points).split("|")]
    lines = "".join(f'<polyline points="{run}" class="line"/>' for run in runs if run)
    radius = 2.5 if len(layers) < _MANY else 1.7
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{at(math.log10(norm)):.1f}" r="{radius}" class="{kind}"/>'
        for x, layer in zip(xs, layers, strict=True)
        for kind, norm in (("output", layer.norm), *(("param", norm) for norm in layer.params))
        if norm
    )
    marks = "".join(
        _mark(layer.mark, x, _TOP + 6 if layer.mark == "broken" else _BOTTOM - 6)
        for x, layer in zip(xs, layers, strict=True)
        if layer.mark
    )
    return svg.decades(low, high, at) + lines + dots + marks


def _ratios(layers: Sequence[FlowLayer], xs: Sequence[float], step: float) -> str:
    if not any(layer.ratio for layer in layers):
        text = "no parameter of these layers has a gradient other than zero"
        return svg.caption(_BASE - _RATIOS - 8, text)
    low, high = find_decades(layer.ratio for layer in layers if layer.ratio)

    def at(log: float) -> float:
        return _BASE - (log - low) / (high - low) * _RATIOS

    tops = [
        (x, at(math.log10(layer.ratio))) for x, layer in zip(xs, layers, strict=True) if layer.ratio
    ]
    bars = "".join(svg.bar(x, y, step, _BASE - y) for x, y in tops)
    return svg.decades(low, high, at) + bars + svg.caption(_BASE - _RATIOS - 8, RATIO)


def _mark(mark: str, x: float, y: float) -> str:
    return f'<path d="{_SHAPES[mark]}" transform="translate({x:.1f} {y:.1f})" class="{mark}"/>'


def _legend(layers: Sequence[FlowLayer]) -> str:
    line = '<line x1="-9" x2="9" y1="0" y2="0" class="line"/><circle r="2" class="output"/>'
    entries = [(line, "of outputs"), ('<circle r="2.5" class="param"/>', "of parameters")]
    for mark, text in MARKS.items():
        if any(layer.mark == mark for layer in layers):
            entries.append((_mark(mark, 0, 0), text))
    return svg.legend(svg.caption(14, "norm of the gradient, layer by layer"), 220, entries)


def _title(layer: FlowLayer) -> str:
    parts = [for_page(layer.call_id)]
    if layer.norm:
        parts.append(f"output {layer.norm:.3g}")
    if layer.params:
        parts.append(f"parameters {', '.join(f'{norm:.3g}' for norm in layer.params)}")
    if layer.ratio:
        parts.append(f"to weights {layer.ratio:.3g}")
    return "  ".join([*parts, *([for_page(layer.note)] if layer.note else [])])
