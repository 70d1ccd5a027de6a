"""Draw the page's charts over depth (statistics, gradients) and its histograms, as SVG text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.draw import svg
from hookcli.render.draw.gradient_flow import MARKS, RATIO, list_flow_layers, sort_by_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.records.rows import LayerRow
    from hookcli.render.draw.gradient_flow import FlowLayer

_BAND, _BARS, _ABOVE, _GAP = 176, 60, 24, 14  # pixels: heights of plots, of captions, of gaps
_TOP, _EDGE, _NORMS, _BETWEEN, _RATIOS = 24, 16, 200, 30, 80
_MANY = 100  # with this many layers or more, dots are smaller
_BOTTOM = _TOP + 2 * _EDGE + _NORMS  # the lower edge of the upper plot
_BASE = _BOTTOM + _BETWEEN + _RATIOS  # the lower edge of the lower plot
_SHAPES = {"broken": "M-4,-4H4L0,4Z", "none": "M-4,-4L4,4M-4,4L4,-4", "zero": "M-4,4H4L0,-4Z"}
SPREAD = "mean, with one standard deviation up and down"


@dataclass(frozen=True, slots=True)
class DepthPoint:
    call_id: str
    figures: tuple[float, float] | None  # mean and standard deviation; None if not finite
    zeros: float  # the share of zeros, 0 to 1
    params: int


def list_depth_points(rows: Iterable[LayerRow]) -> list[DepthPoint]:
    """Return a point per output, in the order in which calls end; [] if no output is finite."""
    points = [
        DepthPoint(
            row.call_id,
            None if row.mean is None or row.std is None else (row.mean, row.std),
            row.zero_fraction or 0.0,
            row.params,
        )
        for row in sort_by_end(row for row in rows if row.side == "output")
    ]
    return points if any(point.figures for point in points) else []


def draw_depth(rows: Iterable[LayerRow], anchors: dict[str, str]) -> str:
    points = list_depth_points(rows)
    chart = svg.Chart(len(points))
    most = max(point.params for point in points)
    base = _ABOVE
    if any(point.figures and any(point.figures) for point in points):
        chart.caption(14, SPREAD)
        _draw_band(chart, points)
        base += _BAND
    else:
        chart.caption(14, "all values of these layers are zero")
    zeros, params = [point.zeros for point in points], [point.params for point in points]
    for values, scale, label, caption, without in (
        (zeros, 1.0, "100", "zeros, % of values", "no value of these layers is exactly zero"),
        (params, most, _short(most), "parameters", "these layers have no parameters"),
    ):
        base += _GAP + _ABOVE
        chart.caption(base - 10, caption if any(values) else without)
        if any(values):
            base += _BARS
            chart.rule(base - _BARS, label)
            chart.rule(base, "0")
        for x, value in zip(chart.xs, values, strict=True):
            if value:
                chart.bar(x, base - _BARS * value / scale, base)
    calls = [(each.call_id, _figures(each), anchors[each.call_id]) for each in points]
    return chart.draw("Statistics over depth", "depth", base, calls)


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


def _draw_band(chart: svg.Chart, points: Sequence[DepthPoint]) -> None:
    """Draw means and a band of one standard deviation, on an asinh axis (linear near 0)."""
    known = [point.figures for point in points if point.figures]
    spreads = sorted(std for _, std in known)
    unit = spreads[len(spreads) // 2] or 1.0
    low = min(0.0, *(mean - std for mean, std in known))
    high = max(0.0, *(mean + std for mean, std in known))
    bottom, top = math.asinh(low / unit), math.asinh(high / unit)

    def at(value: float) -> float:
        return _ABOVE + (top - math.asinh(value / unit)) / ((top - bottom) or 1) * _BAND

    for value in svg.list_round_ticks(low, high, unit):
        chart.rule(at(value), f"{value:g}")
    for run in svg.list_runs(
        (x, at(mean), at(mean + std), at(mean - std)) if point.figures else None
        for x, point in zip(chart.xs, points, strict=True)
        for mean, std in [point.figures or (0.0, 0.0)]
    ):
        edges = [(x, top) for x, _, top, _ in run] + [(x, low) for x, _, _, low in run[::-1]]
        middles = [(x, y) for x, y, _, _ in run]
        chart.parts.append(f'<polygon points="{svg.join(edges)}" class="band"/>')
        chart.parts.append(f'<polyline points="{svg.join(middles)}" class="line"/>')
        chart.parts += (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in middles)


def _figures(point: DepthPoint) -> str:
    figures = "mean {:.4g}  std {:.4g}".format(*point.figures) if point.figures else "not finite"
    return f"{for_page(point.call_id)}  {figures}"


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def draw_flow_svg(rows: Sequence[LayerRow], anchors: dict[str, str]) -> str:
    layers = list_flow_layers(rows)
    chart = svg.Chart(len(layers))
    _draw_norms(chart, layers)
    base = _draw_ratios(chart, layers)
    calls = [(each.call_id, _title(each), anchors.get(each.call_id)) for each in layers]
    line = '<line x1="-9" x2="9" y1="0" y2="0" class="line"/><circle r="2" class="output"/>'
    entries = [(line, "of outputs"), ('<circle r="2.5" class="param"/>', "of parameters")]
    marks = {layer.mark for layer in layers}
    entries += [(_mark(mark, 0, 0), text) for mark, text in MARKS.items() if mark in marks]
    drawn = chart.draw("Gradients over depth", "depth flow", base, calls)
    return svg.legend("depth flow", entries) + drawn


def _draw_norms(chart: svg.Chart, layers: Sequence[FlowLayer]) -> None:
    low, high = svg.find_decades([n for layer in layers for n in (layer.norm, *layer.params) if n])

    def at(log: float) -> float:
        return _TOP + _EDGE + (high - log) / (high - low) * _NORMS

    chart.caption(14, "norm of the gradient")
    chart.decades(low, high, at)
    placed = list(zip(chart.xs, layers, strict=True))
    points = ((x, at(math.log10(each.norm))) if each.norm else None for x, each in placed)
    for run in svg.list_runs(points):
        chart.parts.append(f'<polyline points="{svg.join(run)}" class="line"/>')
    radius = 2.5 if len(layers) < _MANY else 1.7
    for x, layer in placed:
        dots = (("output", layer.norm), *(("param", norm) for norm in layer.params))
        chart.parts += (
            f'<circle cx="{x:.1f}" cy="{at(math.log10(norm)):.1f}" r="{radius}" class="{kind}"/>'
            for kind, norm in dots
            if norm
        )
        if layer.mark:
            edge = _TOP + 6 if layer.mark == "broken" else _BOTTOM - 6
            chart.parts.append(_mark(layer.mark, x, edge))


def _draw_ratios(chart: svg.Chart, layers: Sequence[FlowLayer]) -> int:
    """Draw the lower plot, of ratios; return the y coordinate of its lower edge, in pixels."""
    logs = [math.log10(layer.ratio) if layer.ratio else None for layer in layers]
    if not any(layer.ratio for layer in layers):
        chart.caption(_BOTTOM + 12, "no gradient can be compared with its weight")
        return _BOTTOM + 20
    low, high = svg.find_decades(layer.ratio for layer in layers if layer.ratio)

    def at(log: float) -> float:
        return _BASE - (log - low) / (high - low) * _RATIOS

    chart.caption(_BASE - _RATIOS - 8, RATIO)
    chart.decades(low, high, at)
    for x, log in zip(chart.xs, logs, strict=True):
        if log is not None:
            chart.bar(x, at(log), _BASE)
    return _BASE


def _mark(mark: str, x: float, y: float) -> str:
    return f'<path d="{_SHAPES[mark]}" transform="translate({x:.1f} {y:.1f})" class="{mark}"/>'


def _title(layer: FlowLayer) -> str:
    parts = [for_page(layer.call_id)]
    if layer.norm:
        parts.append(f"output {layer.norm:.3g}")
    if layer.params:
        parts.append(f"parameters {', '.join(f'{norm:.3g}' for norm in layer.params)}")
    if layer.ratio:
        parts.append(f"to weights {layer.ratio:.3g}")
    return "  ".join([*parts, *([for_page(layer.note)] if layer.note else [])])
