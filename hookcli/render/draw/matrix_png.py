"""Draw a matrix as a heat map: the similarity of layers, or the confusions of a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.render.draw.figures import add_axes, colors_of, start_figure
from hookcli.render.draw.picture_files import encode
from hookcli.render.draw.svg import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from hookcli.config import Theme

_LARGEST, _SMALLEST, _AT_MOST = 28, 5, 900  # pixels: of a cell, and of all cells together
_LABEL = 9  # pixels that a label needs
_LONGEST = 36  # letters of a label
_BAR, _GAP = 14, 16  # pixels: the width of the bar that explains the colours, and its distance


@dataclass(frozen=True, slots=True)
class Cells:
    """Says where a matrix's square cells are, in pixels, in a picture of size (width, height)."""

    size: tuple[int, int]
    left: int
    top: int
    side: int


def draw_matrix(
    values: ArrayLike,
    names: tuple[Sequence[str], Sequence[str]],
    heading: Sequence[str],
    theme: Theme,
) -> tuple[bytes, Cells]:
    from matplotlib.colors import ListedColormap  # takes 0.5 s: imported only for charts

    rows, columns = np.shape(values)
    side = max(_SMALLEST, min(_LARGEST, _AT_MOST // max(rows, columns)))
    step = -(-_LABEL // side)
    shown = [[short_name(name, _LONGEST) for name in each] for each in names]
    left = 20 + 6 * max(map(len, shown[0]), default=0)
    below = 20 + 6 * max(map(len, shown[1]), default=0)
    top = 18 + 18 * len(heading)
    width, height = left + columns * side + _GAP + _BAR + 50, top + rows * side + below
    colors = colors_of(theme)
    figure, size = start_figure(width, height, heading, theme)
    axes = add_axes(figure, left, below, columns * side, rows * side)
    image = axes.imshow(
        np.asarray(values), ListedColormap(colors.scale), vmin=0, vmax=1, aspect="auto"
    )
    label: dict[str, Any] = {"fontsize": 7, "color": colors.dim, "parse_math": False}
    axes.set_yticks(range(0, rows, step), shown[0][::step], **label)
    axes.set_xticks(range(0, columns, step), shown[1][::step], rotation=90, **label)
    axes.tick_params(pad=3)
    tall = min(rows * side, 160)
    beside = add_axes(figure, left + columns * side + _GAP, below + rows * side - tall, _BAR, tall)
    bar = figure.colorbar(image, cax=beside)
    bar.ax.tick_params(labelsize=7, labelcolor=colors.dim, length=0)
    bar.outline.set_visible(False)
    return encode(figure, "png"), Cells(size, left, top, side)
