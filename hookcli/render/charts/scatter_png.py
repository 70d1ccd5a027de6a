"""Draw points in a plane, such as the images of a run by their first two components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.render.charts.figures import DPI, colors_of, write_heading
from hookcli.render.draw.figure_files import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hookcli.config import Theme

_SIDE, _EDGE, _LEGEND = 640, 44, 150  # pixels
_MANY = 2000  # points that are drawn smaller


def draw_scatter(
    points: NDArray[np.float64],
    groups: Mapping[str, Sequence[int]],
    rings: Sequence[int],
    names: tuple[str, str],
    heading: Sequence[str],
    theme: Theme,
) -> bytes:
    """Return a PNG of points.

    Args:
        points: the points, (N, 2).
        groups: the positions of the points of each group, which have one colour; if there is more
            than one group, a legend names them.
        rings: the positions of points to emphasize.
        names: the names of the two axes.
        heading: the lines above the chart; the first one is the title.
        theme: dark or light.
    """
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for charts

    colors = colors_of(theme)
    above = 14 + 18 * len(heading)
    legend = _LEGEND if len(groups) > 1 else 0
    width, height = _SIDE + 2 * _EDGE + legend, _SIDE + above + _EDGE
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=colors.page)
    write_heading(figure, heading, theme)
    box = (_EDGE / width, _EDGE / height, _SIDE / width, _SIDE / height)
    axes = figure.add_axes(box, facecolor=colors.page)
    size = 16 if len(points) <= _MANY else 5
    for number, (name, places) in enumerate(groups.items()):
        part = points[list(places)]
        color = colors.series[number % len(colors.series)]
        axes.scatter(part[:, 0], part[:, 1], size, color, label=name, linewidths=0, alpha=0.85)
    ringed = points[list(rings)]
    axes.scatter(
        ringed[:, 0], ringed[:, 1], 60, facecolors="none", edgecolors=colors.ink, linewidths=0.9
    )
    axes.set_xlabel(names[0], fontsize=8, color=colors.dim)
    axes.set_ylabel(names[1], fontsize=8, color=colors.dim)
    axes.tick_params(labelsize=7, labelcolor=colors.dim, length=0)
    axes.grid(color=colors.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    if legend:
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.01, 1),
            fontsize=8,
            frameon=False,
            labelcolor=colors.ink,
            handletextpad=0.2,
        )
    return encode(figure, "png")
