"""Draw a matrix as a heat map: the similarity of layers, or the confusions of a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.render.draw import figures
from hookcli.render.draw.picture_files import encode
from hookcli.render.draw.svg import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from hookcli.config import Theme

_LARGEST, _LARGE, _SMALLEST = 120, 28, 5  # pixels: of a cell, if there are few, many, too many
_AT_LEAST, _AT_MOST = 330, 900  # pixels of all cells together, if their size allows
_WRITTEN = 40  # pixels of a cell that has room for its value
_DARK = 0.55  # a smaller value is so dark that its number is white
_LABEL = 9  # pixels that a label needs
_LONGEST = 36  # letters of a label
_BAR, _GAP = 14, 16  # pixels: the width of the bar that explains the colours, and its distance


def draw_matrix(
    values: ArrayLike,
    names: tuple[Sequence[str], Sequence[str]],
    heading: Sequence[str],
    theme: Theme,
) -> bytes:
    from matplotlib.colors import ListedColormap  # takes 0.5 s: imported only for charts

    cells = np.asarray(values)
    rows, columns = cells.shape
    most = max(rows, columns)
    side = max(_SMALLEST, min(_LARGEST, max(_LARGE, _AT_LEAST // most), _AT_MOST // most))
    step = -(-_LABEL // side)
    shown = [[short_name(name, _LONGEST) for name in each] for each in names]
    left = 20 + 6 * max(map(len, shown[0]), default=0)
    below = figures.measure_names(shown[1], columns * side)
    top = 18 + 18 * len(heading)
    width, height = left + columns * side + _GAP + _BAR + 50, top + rows * side + below
    colors = figures.colors_of(theme)
    figure = figures.start_figure(width, height, heading, theme)
    axes = figures.add_axes(figure, left, below, columns * side, rows * side)
    image = axes.imshow(cells, ListedColormap(colors.scale), vmin=0, vmax=1, aspect="auto")
    label: dict[str, Any] = {"fontsize": 7, "color": colors.dim, "parse_math": False}
    axes.set_yticks(range(0, rows, step), shown[0][::step], **label)
    figures.name_layers(axes, shown[1], columns * side, colors.dim)
    axes.set_xlim(-0.5, columns - 0.5)
    if side >= _WRITTEN:
        for (row, column), value in np.ndenumerate(cells):
            ink = "white" if value < _DARK else "black"
            axes.text(column, row, f"{value:.2f}", color=ink, fontsize=8, ha="center", va="center")
    axes.tick_params(pad=3)
    tall = min(rows * side, 160)
    x, y = left + columns * side + _GAP, below + rows * side - tall
    beside = figures.add_axes(figure, x, y, _BAR, tall)
    bar = figure.colorbar(image, cax=beside)
    bar.ax.tick_params(labelsize=7, labelcolor=colors.dim, length=0)
    bar.outline.set_visible(False)
    return encode(figure, "png")
