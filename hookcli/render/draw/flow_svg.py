"""Draw gradient flow over depth as SVG text for the page; names are escaped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.draw import svg
from hookcli.render.draw.figures import find_decades
from hookcli.render.draw.gradient_flow import MARKS, RATIO, list_flow_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.records.rows import LayerRow
    from hookcli.render.draw.gradient_flow import FlowLayer

_TOP, _EDGE, _NORMS, _GAP, _RATIOS = 24, 16, 200, 30, 80
_MANY = 100  # with this many layers or more, dots are smaller
_BOTTOM = _TOP + 2 * _EDGE + _NORMS  # the lower edge of the upper plot
_BASE = _BOTTOM + _GAP + _RATIOS  # the lower edge of the lower plot
_SHAPES = {"broken": "M-4,-4H4L0,4Z", "none": "M-4,-4L4,4M-4,4L4,-4", "zero": "M-4,4H4L0,-4Z"}


def draw_flow_svg(rows: Sequence[LayerRow], anchors: dict[str, str]) -> str:
    """Return an SVG of gradient norms and ratios over depth; empty without any gradients."""
    layers = list_flow_layers(rows)
    if not layers:
        return ""
    places, step = svg.space_out(len(layers))
    parts = [_legend(layers), _norms(layers, places), _ratios(layers, places, step)]
    calls = [(each.call_id, _title(each), anchors.get(each.call_id)) for each in layers]
    return svg.drawing_of_calls(
        "Gradients over depth", "depth flow", parts, base=_BASE, calls=calls
    )


def _norms(layers: Sequence[FlowLayer], places: Sequence[float]) -> str:
    """Mark what a logarithmic axis cannot show: NaN, Inf, zeros and missing gradients."""
    norms = [layer.norm for layer in layers]
    low, high = find_decades([n for layer in layers for n in (layer.norm, *layer.params) if n])

    def at(log: float) -> float:
        return _TOP + _EDGE + (high - log) / (high - low) * _NORMS

    points = [
        f"{x:.1f},{at(math.log10(n)):.1f}" if n else "|" for x, n in zip(places, norms, strict=True)
    ]
    runs = [run.strip() for run in " ".join(points).split("|")]
    lines = "".join(f'<polyline points="{run}" class="line"/>' for run in runs if run)
    radius = 2.5 if len(layers) < _MANY else 1.7
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{at(math.log10(norm)):.1f}" r="{radius}" class="{kind}"/>'
        for x, layer in zip(places, layers, strict=True)
        for kind, norm in (("output", layer.norm), *(("param", norm) for norm in layer.params))
        if norm
    )
    marks = "".join(
        _mark(layer.mark, x, _TOP + 6 if layer.mark == "broken" else _BOTTOM - 6)
        for x, layer in zip(places, layers, strict=True)
        if layer.mark
    )
    return svg.decades(low, high, at) + lines + dots + marks


def _ratios(layers: Sequence[FlowLayer], places: Sequence[float], step: float) -> str:
    if not any(layer.ratio for layer in layers):
        text = "no parameter of these layers has a gradient other than zero"
        return svg.caption(_BASE - _RATIOS - 8, text)
    low, high = find_decades(layer.ratio for layer in layers if layer.ratio)

    def at(log: float) -> float:
        return _BASE - (log - low) / (high - low) * _RATIOS

    tops = [
        (x, at(math.log10(layer.ratio)))
        for x, layer in zip(places, layers, strict=True)
        if layer.ratio
    ]
    bars = "".join(svg.bar(x, y, step, _BASE - y) for x, y in tops)
    return svg.decades(low, high, at) + bars + svg.caption(_BASE - _RATIOS - 8, RATIO)


def _mark(mark: str, x: float, y: float) -> str:
    return f'<path d="{_SHAPES[mark]}" transform="translate({x:.1f} {y:.1f})" class="{mark}"/>'


def _legend(layers: Sequence[FlowLayer]) -> str:
    entries = [
        (
            '<line x1="-9" x2="9" y1="0" y2="0" class="line"/><circle r="2" class="output"/>',
            "of outputs",
        ),
        ('<circle r="2.5" class="param"/>', "of parameters"),
    ]
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
