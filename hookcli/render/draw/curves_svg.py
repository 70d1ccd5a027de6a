"""Draw a page's curves over depth, such as the accuracy of a probe on every layer, as SVG text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page
from hookcli.render.draw import svg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.render.draw.curves_png import Curve

_TOP, _HEIGHT = 10, 260  # pixels


def draw_curves_svg(
    label: str, layers: Sequence[str], curves: Sequence[Curve], levels: Sequence[tuple[str, float]]
) -> str:
    """Draw at most two curves, and levels that are the same for all layers, of shares (0 to 1)."""
    chart = svg.Chart(len(layers))

    def at(share: float) -> float:
        return _TOP + _HEIGHT * (1 - min(max(share, 0.0), 1.0))

    for tenths in range(0, 11, 2):
        chart.rule(at(tenths / 10), f"{10 * tenths}%")
    entries = []
    for kind, curve in zip(("one", "two"), curves, strict=False):
        spread = curve.spread or [0.0] * len(layers)
        chart.curve(
            (
                None if math.isnan(value) else (at(value), at(value + std), at(value - std))
                for value, std in zip(curve.values, spread, strict=True)
            ),
            kind,
        )
        shape = f'<path d="M-9,0H9" class="line {kind}"/><circle r="2.5" class="{kind}"/>'
        entries.append((shape, curve.name))
    for number, (name, value) in enumerate(levels):
        end = svg.LEFT + chart.step * chart.count
        path = f'<path d="M{{}},{{}}H{{}}" class="level l{number}"/>'
        chart.parts.append(path.format(svg.LEFT, f"{at(value):.1f}", f"{end:.0f}"))
        entries.append((path.format(-9, 0, 9), name))
    titles = _list_titles(layers, curves)
    calls = [(layer, title, None) for layer, title in zip(layers, titles, strict=True)]
    drawn = chart.draw(label, "depth curves", _TOP + _HEIGHT, calls)
    return svg.legend("depth curves", entries) + drawn


def _list_titles(layers: Sequence[str], curves: Sequence[Curve]) -> Iterator[str]:
    for index, layer in enumerate(layers):
        known = [each for each in curves if not math.isnan(each.values[index])]
        yield "  ".join([for_page(layer), *(f"{c.name} {c.values[index]:.1%}" for c in known)])
