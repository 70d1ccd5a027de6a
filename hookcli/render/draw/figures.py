"""Define the colours, headings, axes and legends of charts that matplotlib draws."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hookcli.config import EMBER
from hookcli.records.pictures import LEVELS
from hookcli.render.draw.canvas import load_palette

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hookcli.config import Theme

INK, DIM, LINE = "#1a1b22", "#5c5f6e", "#8c2f63"
_DPI = 100  # of charts whose size is chosen in pixels
_LETTER, _NAME, _UPRIGHT = 6, 12, 24  # pixels: of a letter, and of a name, turned or upright
# The colours of series differ in lightness, too, so that they are told apart without hue.
_DARK = "#f2a6cf #74b9e6 #ffc861 #8bd98b #ff8a66 #b9a5ff #e3e3a0 #7fd8d0 #d98fa0 #a8a8b8"
_LIGHT = "#8c2f63 #1f6f9c #c07a00 #2e7d32 #b3372e #5b3fb0 #6f6f00 #007a72 #7a3b4a #4a4a58"


@dataclass(frozen=True, slots=True)
class Colors:
    page: str
    ink: str
    dim: str
    line: str
    series: tuple[str, ...]  # of the first lines and dots, the second, and so on
    scale: tuple[str, ...]  # of a heat map, from the lowest value to the highest


@functools.cache
def colors_of(theme: Theme) -> Colors:
    palette = load_palette(EMBER, theme)
    scale = tuple(f"#{bytes(palette[at : at + 3]).hex()}" for at in range(0, 3 * LEVELS, 3))
    if theme == "dark":
        return Colors("#16161c", "#ececf0", "#a2a4b1", "#34353f", tuple(_DARK.split()), scale)
    return Colors("#ffffff", INK, DIM, "#d9dae1", tuple(_LIGHT.split()), scale)


def list_colors(count: int) -> list[str]:
    scale = colors_of("dark").scale  # the same in every theme
    return [scale[step * (len(scale) - 1) // (count - 1)] for step in range(count)]


def start_figure(width: int, height: int, heading: Sequence[str], theme: Theme) -> Figure:
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for charts

    title, *lines = heading
    width = max(width, 24 + max(9 * len(title), *(7 * len(line) for line in lines), 0))
    colors = colors_of(theme)
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor=colors.page)
    for index, line in enumerate(heading):
        size, color = (8, colors.dim) if index else (11, colors.ink)
        x, y = 12 / width, 1 - (8 + 18 * index) / height
        figure.text(x, y, line, va="top", color=color, fontsize=size, parse_math=False)
    return figure


def add_axes(figure: Figure, left: int, bottom: int, width: int, height: int) -> Axes:
    """Add axes without a frame; all numbers are pixels, from the lower left corner."""
    whole, tall = (figure.get_size_inches() * _DPI).round()
    box = (left / whole, bottom / tall, width / whole, height / tall)
    axes = figure.add_axes(box, facecolor=figure.get_facecolor())
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return axes


def measure_names(names: Sequence[str], width: int) -> int:
    """Return the height (pixels) of names below an x axis: one line if all fit side by side."""
    longest = max(map(len, names), default=0)
    is_tight = (longest + 1) * _LETTER * len(names) > width
    return _UPRIGHT + is_tight * _LETTER * longest


def name_layers(axes: Axes, names: Sequence[str], width: int, color: str) -> None:
    """Write names at 0, 1, … below an x axis: level if all fit, or else turned, and only some."""
    upright = measure_names(names, width) == _UPRIGHT
    every = 1 if upright else math.ceil(_NAME * len(names) / width)
    xs, turn = range(0, len(names), every), 0 if upright else 90
    axes.set_xticks(xs, names[::every], rotation=turn, fontsize=7, color=color, parse_math=False)
    axes.set_xlim(-0.6, max(len(names), 1) - 0.4)


def add_legend(
    axes: Axes, ink: str, loc: Literal["lower left", "lower right"], corner: tuple[float, float]
) -> None:
    axes.legend(loc=loc, bbox_to_anchor=corner, ncols=5, fontsize=8, frameon=False, labelcolor=ink)
