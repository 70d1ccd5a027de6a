"""Draw curves over the depth of a network, such as the accuracy of a probe on every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hookcli.render.draw import figures
from hookcli.render.draw.picture_files import encode
from hookcli.render.draw.svg import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.config import Theme

_STEP, _WIDEST, _NARROWEST = 18, 1400, 520  # pixels: of a layer, and of all layers together
_HEIGHT, _LEFT, _RIGHT = 300, 52, 24
_LONGEST = 36  # letters of a name
_LEGEND = 20  # pixels


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    values: Sequence[float | None]  # None where there is none
    spread: Sequence[float | None] = ()  # drawn as a band; empty for none


def draw_curves(
    layers: Sequence[str],
    curves: Sequence[Curve],
    levels: Sequence[tuple[str, float]],
    heading: Sequence[str],
    theme: Theme,
) -> bytes:
    colors = figures.colors_of(theme)
    names = [short_name(name, _LONGEST) for name in layers]
    wide = max(_NARROWEST, min(_WIDEST, _STEP * len(names)))
    below = figures.measure_names(names, wide)
    height = 26 + 18 * len(heading) + _LEGEND + _HEIGHT + below
    figure = figures.start_figure(_LEFT + wide + _RIGHT, height, heading, theme)
    axes = figures.add_axes(figure, _LEFT, below, wide, _HEIGHT)
    xs = np.arange(len(names))
    for curve, color in zip(curves, colors.series, strict=False):
        values = np.array(curve.values, np.float64)
        style = {"marker": "o", "markersize": 3, "linewidth": 1.4}
        axes.plot(xs, values, color=color, label=curve.name, **style)  # type: ignore[arg-type]
        if len(curve.spread):
            spread = np.array(curve.spread, np.float64)
            edges = values - spread, values + spread
            axes.fill_between(xs, *edges, color=color, alpha=0.18, linewidth=0)
    dashes = ("--", ":", "-.")
    for number, (name, value) in enumerate(levels):
        color = colors.series[(len(curves) + number) % len(colors.series)]
        dash = dashes[number % len(dashes)]
        axes.axhline(value, color=color, linestyle=dash, linewidth=1.2, label=name)
    axes.set_ylim(0, 1.02)
    figures.name_layers(axes, names, wide, colors.dim)
    axes.tick_params(axis="y", labelsize=8, labelcolor=colors.dim)
    axes.grid(axis="y", color=colors.line, linewidth=0.8)
    figures.add_legend(axes, colors.ink, "lower left", (0, 1.01))
    return encode(figure, "png")
