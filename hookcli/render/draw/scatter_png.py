"""Draw points in a plane, such as the images of a run by their first two components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hookcli.render.draw.figures import add_axes, colors_of, start_figure
from hookcli.render.draw.picture_files import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from hookcli.config import Theme
    from hookcli.render.draw.figures import Colors

_SIDE, _EDGE, _LEGEND = 640, 44, 150  # pixels
_MANY = 2000  # points that are drawn smaller
_LONGEST = 22  # letters of a name in the legend


def draw_scatter(
    points: ArrayLike,
    groups: Mapping[str, Sequence[int]],
    rings: Sequence[int],
    names: tuple[str, str],
    heading: Sequence[str],
    theme: Theme,
) -> bytes:
    coordinates, colors = np.asarray(points), colors_of(theme)
    above = 14 + 18 * len(heading)
    drawn, most = list(groups.items()), len(colors.series)
    if len(drawn) > most:
        rest = [index for _, indices in drawn[most - 1 :] for index in indices]
        drawn = [*drawn[: most - 1], (f"{len(drawn) - most + 1} others", rest)]
    legend = _LEGEND if len(drawn) > 1 else 0
    width, height = _SIDE + 2 * _EDGE + legend, _SIDE + above + _EDGE
    figure = start_figure(width, height, heading, theme)
    axes = add_axes(figure, _EDGE, _EDGE, _SIDE, _SIDE)
    size = 16 if len(coordinates) <= _MANY else 5
    for (_, indices), color in zip(drawn, colors.series, strict=False):
        part = coordinates[list(indices)]
        axes.scatter(part[:, 0], part[:, 1], size, color, linewidths=0, alpha=0.85)
    if legend:
        _write_legend(axes, [name for name, _ in drawn], colors)
    ringed = coordinates[list(rings)]
    axes.scatter(
        ringed[:, 0], ringed[:, 1], 60, facecolors="none", edgecolors=colors.ink, linewidths=0.9
    )
    axes.set_xlabel(names[0], fontsize=8, color=colors.dim)
    axes.set_ylabel(names[1], fontsize=8, color=colors.dim)
    axes.tick_params(labelsize=7, labelcolor=colors.dim)
    axes.grid(color=colors.line, linewidth=0.6)
    return encode(figure, "png")


def _write_legend(axes: Axes, names: Sequence[str], colors: Colors) -> None:
    legend = axes.legend(
        axes.collections,
        [str(number) for number in range(len(names))],
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        fontsize=8,
        frameon=False,
        labelcolor=colors.ink,
        handletextpad=0.2,
    )
    # matplotlib leaves out names that begin with "_", so hookcli puts them in afterwards
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")
