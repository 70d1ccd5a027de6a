"""Draw ``overview.png``, one picture of a run for a slide or a pull request."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image

from hookcli.render.draw.depth_svg import list_depth_points
from hookcli.render.draw.figures import DIM, INK, LINE
from hookcli.render.draw.picture_files import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from hookcli.config import PictureFormat
    from hookcli.records.images import ImageResult
    from hookcli.records.pictures import Grid
    from hookcli.records.report import ReportDocument
    from hookcli.records.rows import LayerRow

_LAYERS, _TILES = 3, 6
_BAND = "#f0c9a8"


def draw_overview(
    document: ReportDocument, read: Callable[[str], bytes], form: PictureFormat = "png"
) -> bytes:
    """Return a picture of a run; ``read`` returns the content of a picture file of the run."""
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for this picture

    figure = Figure(figsize=(12, 7.2), dpi=130, facecolor="white")
    spaces = figure.add_gridspec(
        2 + _LAYERS,
        8,
        height_ratios=[2.2, *[1] * _LAYERS, 1.5],
        hspace=0.5,
        wspace=0.12,
        left=0.05,
        right=0.97,
        top=0.92,
        bottom=0.08,
    )
    image = document.images[0]
    trained = "" if document.model.trained else "   NOT TRAINED"
    figure.suptitle(
        f"{document.model.name}   {document.model.weights}{trained}".replace("$", r"\$"),
        x=0.05,
        ha="left",
        color=INK,
        fontsize=14,
    )
    _show(figure.add_subplot(spaces[0, :2]), Image.open(io.BytesIO(read(image.seen))))
    _write_predictions(figure.add_subplot(spaces[0, 2:]), document, image)
    grids = [g for g in document.grids if g.image == image.key and g.places]
    for row, grid in enumerate(_choose_evenly(grids, _LAYERS), 1):
        with Image.open(io.BytesIO(read(grid.file))) as picture:
            tiles = _cut_tiles(picture.convert("RGB"), grid)
        label = figure.add_subplot(spaces[row, :2])
        label.axis("off")
        label.text(0, 0.5, _plain(grid.call_id), va="center", color=INK, fontsize=9)
        for column, (channel, tile) in enumerate(tiles, 2):
            _show(figure.add_subplot(spaces[row, column]), tile, f"{channel}")
    _plot_depth(figure.add_subplot(spaces[-1, :]), document.layers)
    return encode(figure, form)


def _show(axes: Axes, picture: Image.Image, title: str = "") -> None:
    axes.imshow(picture, interpolation="none")
    axes.set_title(title, fontsize=7, color=DIM, pad=2)
    axes.axis("off")


def _write_predictions(axes: Axes, document: ReportDocument, image: ImageResult) -> None:
    more = len(document.images) - 1
    lines = [_plain(image.file) + (f"   (the first of {more + 1} images)" if more else "")]
    for prediction in image.predictions:
        value = "" if prediction.value is None else f"  {100 * prediction.value:.1f}%"
        value = f"  {prediction.value:.3g} pixels" if prediction.measure == "pixels" else value
        lines.append(f"   {_plain(prediction.category)}{value}")
    claims = [each for each in image.predictions if each.measure != "features"]
    if claims and not document.model.trained:
        lines.append("   (meaningless: the weights are random)")
    axes.axis("off")
    axes.text(0.02, 1, "\n".join(lines), va="top", color=INK, fontsize=10, linespacing=1.5)


def _plot_depth(axes: Axes, layers: Sequence[LayerRow]) -> None:
    points = list_depth_points(layers)
    if not points:
        axes.axis("off")
        return
    places = range(1, len(points) + 1)
    means = [point.mean for point in points]
    lows = [point.mean - point.std for point in points]
    highs = [point.mean + point.std for point in points]
    axes.fill_between(places, lows, highs, color=_BAND, linewidth=0)
    axes.plot(places, means, color=LINE, marker="o", markersize=2.5, linewidth=1)
    spreads = sorted(point.std for point in points)
    axes.set_yscale("symlog", linthresh=max(1e-6, spreads[len(points) // 2]))
    axes.set_title(
        "mean, with one spread up and down, layer by layer", fontsize=9, color=DIM, loc="left"
    )
    axes.locator_params(axis="x", integer=True, nbins=12)
    axes.tick_params(labelsize=7, colors=DIM)
    axes.spines[["top", "right"]].set_visible(False)


def _choose_evenly(grids: Sequence[Grid], count: int) -> list[Grid]:
    if len(grids) <= count:
        return list(grids)
    return [grids[round(i * (len(grids) - 1) / (count - 1))] for i in range(count)]


def _cut_tiles(picture: Image.Image, grid: Grid) -> list[tuple[int, Image.Image]]:
    places = grid.places
    tiles: list[tuple[int, Image.Image]] = []
    if places is None:
        return tiles
    for index, channel in enumerate(grid.channels[:_TILES]):
        left = places.left + index % places.columns * places.step_x
        top = places.top + index // places.columns * places.step_y
        box = (left, top, left + places.width, top + places.height)
        tiles.append((channel, picture.crop(box)))
    return tiles


def _plain(text: str) -> str:
    """Return text as one short line that matplotlib does not parse as a formula."""
    line = text if len(text) <= 60 else f"{text[:28]}…{text[-28:]}"
    return "".join(c if c.isprintable() else "?" for c in line).replace("$", r"\$")
