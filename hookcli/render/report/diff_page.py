"""Two runs held against each other as one HTML page: the verdict, what changed, all calls, and pictures of the worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.escape import reversible
from hookcli.records.text import fact_text, figure_text, shape_text
from hookcli.render.charts.distance_svg import draw_distances
from hookcli.render.report.templates import asset, linked, make_environment, ours

if TYPE_CHECKING:
    from hookcli.distance.comparison import Comparison, DiffRow


@dataclass(frozen=True, slots=True)
class DiffPicture:
    """A picture of one call: A, B and their difference.

    Attributes:
        row: the call.
        file: beside the page.
        size: width and height in pixels.
        caption: lines that say what it shows.
        alt: the same figures for who does not see it.
    """

    row: DiffRow
    file: str
    size: tuple[int, int]
    caption: tuple[str, ...]
    alt: str


@dataclass(frozen=True, slots=True)
class DiffPage:
    """What the page shows.

    Attributes:
        title: the model.
        verdict: one line.
        comparison: the figures.
        notes: what else there is to say.
        pictures: the first that differs, and then the worst.
    """

    title: str
    verdict: str
    comparison: Comparison
    notes: tuple[str, ...] = ()
    pictures: tuple[DiffPicture, ...] = ()


def render_difference(page: DiffPage) -> str:
    """The page as text. Pure: the same values give the same page."""
    comparison = page.comparison
    drawn = {picture.row.rank: f"call-{picture.row.rank}" for picture in page.pictures}
    anchors = {row.rank: drawn.get(row.rank, f"row-{row.rank}") for row in comparison.rows}
    environment = make_environment()
    environment.filters |= {
        "figure": figure_text,
        "shape": shape_text,
        "fact": fact_text,
    }
    return environment.get_template("diff.html.j2").render(
        page=page,
        comparison=comparison,
        a=reversible(comparison.a),
        b=reversible(comparison.b),
        drawn=drawn,
        anchors=anchors,
        link=linked,
        plot=ours(draw_distances(comparison.rows, anchors)),
        style=ours(asset("page.css") + asset("diff.css")),
    )
