"""Draw ``gradient_flow.png``: gradient norms over depth, for a slide or a pull request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hookcli.render.draw.figures import DIM, INK, LINE
from hookcli.render.draw.gradient_flow import MARKS, RATIO, list_flow_layers
from hookcli.render.draw.picture_files import encode
from hookcli.render.draw.svg import find_decades, list_ticks, power_of_ten, short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hookcli.config import PictureFormat
    from hookcli.records.rows import LayerRow
    from hookcli.render.draw.gradient_flow import FlowLayer, Mark

_GRID, _DOTS, _WARNING = "#e4e5ea", "#1f6f9c", "#d6281c"
_MARKS: dict[Mark, tuple[str, str]] = {
    "broken": ("v", _WARNING),
    "none": ("x", INK),
    "zero": ("^", DIM),
}
_LABEL = 0.15  # inches per label on the x axis
_LONGEST = 30


def draw_flow(
    rows: Sequence[LayerRow], heading: Sequence[str], form: PictureFormat = "png"
) -> bytes:
    """Return a picture with two charts over depth: gradient norms, and one ratio per layer."""
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for this chart

    layers = list_flow_layers(rows)
    names = [short_name(layer.call_id, _LONGEST) for layer in layers]
    width = min(20.0, max(8.0, 1 + _LABEL * len(layers)))
    bottom = 0.5 + 0.065 * max(map(len, names), default=0)
    height = 4.5 + bottom + 0.25 * len(heading)
    figure = Figure(figsize=(width, height), dpi=110, facecolor="white")
    top = 1 - (0.55 + 0.25 * len(heading)) / height
    figure.subplots_adjust(0.75 / width, bottom / height, 1 - 0.2 / width, top, hspace=0.22)
    norms, ratios = figure.subplots(2, sharex=True, height_ratios=[2.6, 1])
    _write_heading(figure, heading)
    _plot_norms(norms, layers)
    _plot_ratios(ratios, layers)
    _label_layers(ratios, names, width)
    norms.tick_params(labelbottom=False, length=0)
    return encode(figure, form)


def _write_heading(figure: Figure, heading: Sequence[str]) -> None:
    width, height = figure.get_size_inches()
    for index, line in enumerate(heading):
        style = {"fontsize": 9, "color": DIM} if index else {"fontsize": 13, "color": INK}
        y = 1 - (0.15 + 0.25 * index) / height
        figure.text(0.2 / width, y, line, style, va="top", parse_math=False)


def _plot_norms(axes: Axes, layers: Sequence[FlowLayer]) -> None:
    norms = [layer.norm for layer in layers]
    dots = [(at, norm) for at, layer in enumerate(layers) for norm in layer.params]
    low, high = find_decades([*filter(None, norms), *(norm for _, norm in dots)])
    heights = [math.log10(norm) if norm else math.nan for norm in norms]
    axes.plot(heights, color=LINE, marker="o", markersize=3, linewidth=1.2, label="of outputs")
    style: dict[str, Any] = {"color": _DOTS, "markerfacecolor": "white", "markersize": 3.5}
    places, logs = [at for at, _ in dots], [math.log10(norm) for _, norm in dots]
    axes.plot(places, logs, "o", label="of parameters", **style)
    for mark, (shape, colour) in _MARKS.items():
        places = [at for at, layer in enumerate(layers) if layer.mark == mark]
        edges = [0.97 if mark == "broken" else 0.03] * len(places)
        style = {"color": colour, "label": MARKS[mark], "markersize": 7}
        if places:
            axes.plot(places, edges, shape, transform=axes.get_xaxis_transform(), **style)
    axes.set_title("norm of the gradient", fontsize=9, color=DIM, loc="left")
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=5,
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        handletextpad=0.3,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    room = 0.08 * (high - low)
    _mark_decades(axes, low, high)
    axes.set_ylim(low - room, high + room)


def _plot_ratios(axes: Axes, layers: Sequence[FlowLayer]) -> None:
    bars = [(at, math.log10(layer.ratio)) for at, layer in enumerate(layers) if layer.ratio]
    low, high = find_decades(layer.ratio for layer in layers if layer.ratio)
    thick = min(0.7, len(layers) / 15)
    axes.bar([at for at, _ in bars], [y - low for _, y in bars], thick, low, color=_DOTS)
    axes.set_title(RATIO, fontsize=9, color=DIM, loc="left")
    _mark_decades(axes, low, high)
    axes.set_ylim(low, high)


def _mark_decades(axes: Axes, low: int, high: int) -> None:
    ticks = list_ticks(low, high)
    axes.set_yticks(ticks, [power_of_ten(tick) for tick in ticks])
    axes.tick_params(labelsize=8, colors=DIM)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GRID)


def _label_layers(axes: Axes, names: Sequence[str], width: float) -> None:
    step = max(1, math.ceil(len(names) * _LABEL / (width - 0.95)))
    places = range(0, len(names), step)
    axes.set_xticks(places, names[::step], rotation=90, fontsize=7, parse_math=False)
    axes.set_xlim(-0.6, max(len(names), 1) - 0.4)
    if step > 1:
        note = f"{len(names)} layers, one in {step} named"
        axes.set_xlabel(note, fontsize=8, color=DIM, loc="right")
