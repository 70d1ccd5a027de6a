"""Gradient flow over depth as SVG text for the page; names in it are escaped."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from hookcli.escape import for_page
from hookcli.render.charts.gradient_flow import (
    MARKS,
    find_decades,
    list_flow_layers,
    list_ticks,
    power_of_ten,
    short_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.render.charts.gradient_flow import FlowLayer

_WIDTH, _LEFT, _RIGHT = 960, 56, 12
_TOP, _EDGE, _NORMS, _GAP, _RATIOS = 24, 16, 200, 30, 80
_MANY = 100  # layers whose dots are smaller
_LABEL, _LONGEST = 13, 24  # pixels between names, and letters of a name
_BOTTOM = _TOP + 2 * _EDGE + _NORMS  # of the upper plot
_BASE = _BOTTOM + _GAP + _RATIOS  # of the lower
_SHAPES = {"broken": "M-4,-4H4L0,4Z", "none": "M-4,-4L4,4M-4,4L4,-4", "zero": "M-4,4H4L0,-4Z"}


def draw_flow_svg(rows: Sequence[dict[str, Any]], anchors: dict[str, str]) -> str:
    """Norms of gradients, layer by layer, and below how large they are beside the weights; empty without rows.

    Args:
        rows: as ``hookcli.render.charts.gradient_flow.list_flow_layers`` takes them.
        anchors: where the page tells of a call, by call id; what has no place is no link.
    """
    layers = list_flow_layers(rows)
    if not layers:
        return ""
    step = (_WIDTH - _LEFT - _RIGHT) / len(layers)
    places = [_LEFT + step * (index + 0.5) for index in range(len(layers))]
    height = _BASE + 16 + 7 * max(len(short_name(layer.call_id, _LONGEST)) for layer in layers)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="Gradients over depth" class="depth flow">',
        _legend(layers),
        _norms(layers, places),
        _ratios(layers, places, step),
        _names(layers, places),
    ]
    for layer, x in zip(layers, places, strict=True):
        hit = (
            f'<rect x="{x - step / 2:.1f}" y="0" width="{step:.1f}" height="{_BASE}" class="hit"/>'
            f"<title>{escape(_title(layer))}</title>"
        )
        anchor = anchors.get(layer.call_id)
        parts.append(f'<a href="#{anchor}">{hit}</a>' if anchor else f"<g>{hit}</g>")
    return "".join([*parts, "</svg>"])


def _norms(layers: Sequence[FlowLayer], places: Sequence[float]) -> str:
    """A line for outputs, broken where there is no norm, dots for parameters, marks at the edges."""
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
    return _decades(low, high, at) + lines + dots + marks


def _ratios(layers: Sequence[FlowLayer], places: Sequence[float], step: float) -> str:
    low, high = find_decades(layer.ratio for layer in layers if layer.ratio)

    def at(log: float) -> float:
        return _BASE - (log - low) / (high - low) * _RATIOS

    width = min(step * 0.7, 40.0)
    tops = [
        (x, at(math.log10(layer.ratio)))
        for x, layer in zip(places, layers, strict=True)
        if layer.ratio
    ]
    bars = "".join(
        f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BASE - y:.1f}" class="bar"/>'
        for x, y in tops
    )
    text = "norm of a parameter's gradient over that of the parameter, the largest of each layer"
    caption = f'<text x="{_LEFT}" y="{_BASE - _RATIOS - 8}" class="caption">{text}</text>'
    return _decades(low, high, at) + bars + caption


def _decades(low: int, high: int, at: Callable[[float], float]) -> str:
    return "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at(tick):.1f}" y2="{at(tick):.1f}" class="zero"/>'
        f'<text x="{_LEFT - 6}" y="{at(tick) + 4:.1f}" class="tick">{power_of_ten(tick)}</text>'
        for tick in list_ticks(low, high)
    )


def _mark(mark: str, x: float, y: float) -> str:
    return f'<path d="{_SHAPES[mark]}" transform="translate({x:.1f} {y:.1f})" class="{mark}"/>'


def _legend(layers: Sequence[FlowLayer]) -> str:
    """What the shapes stand for; of the marks, those that are there."""
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
    parts = [
        f'<text x="{_LEFT}" y="14" class="caption">norm of the gradient, layer by layer</text>'
    ]
    x = _LEFT + 220
    for shape, text in entries:
        parts.append(
            f'<g transform="translate({x} 10)">{shape}<text x="13" y="4">{text}</text></g>'
        )
        x += 44 + 6 * len(text)
    return "".join(parts)


def _names(layers: Sequence[FlowLayer], places: Sequence[float]) -> str:
    """The name of every layer, or of every n-th where they would run into each other."""
    step = -(-len(layers) * _LABEL // (_WIDTH - _LEFT - _RIGHT))
    return "".join(
        f'<text transform="translate({x + 4:.1f} {_BASE + 8}) rotate(-90)" class="tick">{escape(short_name(layer.call_id, _LONGEST))}</text>'
        for x, layer in list(zip(places, layers, strict=True))[::step]
    )


def _title(layer: FlowLayer) -> str:
    """The numbers of one layer, as the mouse sees them."""
    parts = [for_page(layer.call_id)]
    if layer.norm:
        parts.append(f"output {layer.norm:.3g}")
    if layer.params:
        parts.append(f"parameters {', '.join(f'{norm:.3g}' for norm in layer.params)}")
    if layer.ratio:
        parts.append(f"to weights {layer.ratio:.3g}")
    return "  ".join([*parts, *([for_page(layer.note)] if layer.note else [])])
