"""Draw ``overview.png``, a slide on a run's first image, and ``gradient_flow.png``, a chart."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from hookcli.records.images import spread_evenly
from hookcli.render.draw import figures, svg
from hookcli.render.draw.depth_svg import SPREAD, list_depth_points
from hookcli.render.draw.gradient_flow import MARKS, RATIO, list_flow_layers
from hookcli.render.draw.picture_files import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from hookcli.config import PictureFormat
    from hookcli.records.images import ImageResult
    from hookcli.records.pictures import Grid
    from hookcli.records.report import ReportDocument
    from hookcli.records.rows import LayerRow
    from hookcli.render.draw.gradient_flow import FlowLayer, Mark

_LAYERS, _TILES = 3, 6
_BAND = "#f0c9a8"
_GRID, _DOTS, _WARNING = "#e4e5ea", "#1f6f9c", "#d6281c"
_MARKS: dict[Mark, tuple[str, str]] = {
    "broken": ("v", _WARNING),
    "none": ("x", figures.INK),
    "zero": ("^", figures.DIM),
}
_DEPTH = 1100  # pixels: the width of the overview's chart in the size of its letters
# Pixels of the gradient flow: per layer, of all layers, of its two charts, and of margins
_LABEL, _NARROWEST_FLOW, _WIDEST_FLOW = 14, 800, 1900
_NORMS, _RATIOS, _BETWEEN, _LEFT, _RIGHT = 250, 96, 30, 60, 20
_LONGEST, _WIDEST, _SHORT = 30, 60, 22  # letters of names: in the flow, the overview, its chart


def draw_overview(
    document: ReportDocument, read: Callable[[str], bytes], form: PictureFormat = "png"
) -> bytes:
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for this picture

    figure = Figure(figsize=(12, 8), dpi=130, facecolor="white")
    heights = [2.2, *[1] * _LAYERS, 1.5]
    spaces = figure.add_gridspec(2 + _LAYERS, 8, height_ratios=heights, hspace=0.5, wspace=0.12)
    spaces.update(left=0.05, right=0.97, top=0.93, bottom=0.17)
    image, model = document.images[0], document.model
    title = f"{model.name}   {model.weights}{'' if model.trained else '   NOT TRAINED'}"
    figure.suptitle(title, x=0.05, ha="left", color=figures.INK, fontsize=14, parse_math=False)
    _show(figure.add_subplot(spaces[0, :2]), Image.open(io.BytesIO(read(image.seen))))
    _write_predictions(figure.add_subplot(spaces[0, 2:]), document, image)
    grids = [g for g in document.grids if g.image == image.key and g.places]
    chosen = spread_evenly(len(grids), min(len(grids), _LAYERS))
    for row, grid in enumerate((grids[index] for index in chosen), 1):
        with Image.open(io.BytesIO(read(grid.file))) as picture:
            tiles = _cut_tiles(picture.convert("RGB"), grid)
        label = figure.add_subplot(spaces[row, :2])
        label.axis("off")
        style = {"color": figures.INK, "fontsize": 9, "va": "center"}
        label.text(0, 0.5, svg.short_name(grid.call_id, _WIDEST), style, parse_math=False)
        for column, (channel, tile) in enumerate(tiles, 2):
            _show(figure.add_subplot(spaces[row, column]), tile, f"{channel}")
    _plot_depth(figure.add_subplot(spaces[-1, :]), document.layers)
    return encode(figure, form)


def _show(axes: Axes, picture: Image.Image, title: str = "") -> None:
    axes.imshow(picture, interpolation="none")
    axes.set_title(title, fontsize=7, color=figures.DIM, pad=2)
    axes.axis("off")


def _write_predictions(axes: Axes, document: ReportDocument, image: ImageResult) -> None:
    count = len(document.images)
    of = f"   (the first of {count} images)" if count > 1 else ""
    lines = [f"{svg.short_name(image.file, _WIDEST)}{of}"]
    for prediction in image.predictions:
        value = "" if prediction.value is None else f"  {100 * prediction.value:.1f}%"
        value = f"  {prediction.value:.3g} pixels" if prediction.measure == "pixels" else value
        lines.append(f"   {svg.short_name(prediction.category, _WIDEST)}{value}")
    claims = [each for each in image.predictions if each.measure != "features"]
    if claims and not document.model.trained:
        lines.append("   (meaningless: the weights are random)")
    axes.axis("off")
    style = {"color": figures.INK, "fontsize": 10, "linespacing": 1.5}
    axes.text(0.02, 1, "\n".join(lines), style, va="top", parse_math=False)


def _plot_depth(axes: Axes, layers: Sequence[LayerRow]) -> None:
    points = list_depth_points(layers)
    if not points:
        axes.axis("off")
        return
    means, spreads = np.array([each.figures or (np.nan, np.nan) for each in points]).T
    low, high = np.nanmin([0, *(means - spreads)]), np.nanmax([0, *(means + spreads)])
    unit = max(1e-6, float(np.nanmedian(spreads)))
    edges = means - spreads, means + spreads
    axes.fill_between(range(len(points)), *edges, color=_BAND, linewidth=0)
    axes.plot(means, color=figures.LINE, marker="o", markersize=2.5, linewidth=1)
    axes.set_yscale("asinh", linear_width=unit)
    ticks = svg.list_round_ticks(float(low), float(high), unit)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_title(f"{SPREAD}, layer by layer", fontsize=9, color=figures.DIM, loc="left")
    axes.minorticks_off()
    axes.tick_params(labelsize=7, colors=figures.DIM)
    names = [svg.short_name(point.call_id, _SHORT) for point in points]
    figures.name_layers(axes, names, _DEPTH, figures.DIM)
    axes.spines[["top", "right"]].set_visible(False)


def _cut_tiles(picture: Image.Image, grid: Grid) -> list[tuple[int, Image.Image]]:
    boxes = grid.places
    tiles: list[tuple[int, Image.Image]] = []
    if boxes is None:
        return tiles
    for index, channel in enumerate(grid.channels[:_TILES]):
        left = boxes.left + index % boxes.columns * boxes.step_x
        top = boxes.top + index // boxes.columns * boxes.step_y
        box = (left, top, left + boxes.width, top + boxes.height)
        tiles.append((channel, picture.crop(box)))
    return tiles


def draw_flow(
    rows: Sequence[LayerRow], heading: Sequence[str], form: PictureFormat = "png"
) -> bytes:
    layers = list_flow_layers(rows)
    names = [svg.short_name(layer.call_id, _LONGEST) for layer in layers]
    wide = min(_WIDEST_FLOW, max(_NARROWEST_FLOW, _LABEL * len(layers)))
    below = figures.measure_names(names, wide)
    above = below + _RATIOS + _BETWEEN
    height = above + _NORMS + 44 + 18 * len(heading)
    figure = figures.start_figure(wide + _LEFT + _RIGHT, height, heading, "light")
    ratios = figures.add_axes(figure, _LEFT, below, wide, _RATIOS)
    norms = figures.add_axes(figure, _LEFT, above, wide, _NORMS)
    _plot_norms(norms, layers)
    _plot_ratios(ratios, layers)
    figures.name_layers(ratios, names, wide, figures.DIM)
    norms.set_xticks([])
    norms.set_xlim(ratios.get_xlim())
    return encode(figure, form)


def _plot_norms(axes: Axes, layers: Sequence[FlowLayer]) -> None:
    norms = [layer.norm for layer in layers]
    dots = [(at, norm) for at, layer in enumerate(layers) for norm in layer.params]
    low, high = svg.find_decades([*filter(None, norms), *(norm for _, norm in dots)])
    heights = [math.log10(norm) if norm else math.nan for norm in norms]
    style: dict[str, Any] = {"color": figures.LINE, "linewidth": 1.2, "markersize": 3}
    axes.plot(heights, marker="o", label="of outputs", **style)
    style = {"color": _DOTS, "markerfacecolor": "white", "markersize": 3.5}
    xs, logs = [at for at, _ in dots], [math.log10(norm) for _, norm in dots]
    axes.plot(xs, logs, "o", label="of parameters", **style)
    for mark, (shape, colour) in _MARKS.items():
        xs = [at for at, layer in enumerate(layers) if layer.mark == mark]
        edges = [0.97 if mark == "broken" else 0.03] * len(xs)
        style = {"color": colour, "label": MARKS[mark], "markersize": 7}
        if xs:
            axes.plot(xs, edges, shape, transform=axes.get_xaxis_transform(), **style)
    axes.set_title("norm of the gradient", fontsize=9, color=figures.DIM, loc="left")
    figures.add_legend(axes, figures.INK, "lower right", (1, 1))
    room = 0.08 * (high - low)
    _mark_decades(axes, low, high)
    axes.set_ylim(low - room, high + room)


def _plot_ratios(axes: Axes, layers: Sequence[FlowLayer]) -> None:
    bars = [(at, math.log10(layer.ratio)) for at, layer in enumerate(layers) if layer.ratio]
    low, high = svg.find_decades(layer.ratio for layer in layers if layer.ratio)
    thick = min(0.7, len(layers) / 15)
    axes.bar([at for at, _ in bars], [y - low for _, y in bars], thick, low, color=_DOTS)
    axes.set_title(RATIO, fontsize=9, color=figures.DIM, loc="left")
    _mark_decades(axes, low, high)
    axes.set_ylim(low, high)


def _mark_decades(axes: Axes, low: int, high: int) -> None:
    ticks = svg.list_ticks(low, high)
    axes.set_yticks(ticks, [svg.power_of_ten(tick) for tick in ticks])
    axes.tick_params(labelsize=8, colors=figures.DIM)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
