"""The comparison of two runs as one HTML page: verdict, changed facts, all calls, and pictures."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.distance.blame import blame_text
from hookcli.distance.verdict import first_text, list_notes, verdict_text
from hookcli.outside.escape import reversible
from hookcli.records.text import fact_text, figure_text, shape_text
from hookcli.render.report.distance_svg import draw_distances
from hookcli.render.report.templates import asset, linked, make_environment, ours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template

    from hookcli.distance.comparison import Comparison, DiffRow


@dataclass(frozen=True, slots=True)
class DiffPicture:
    """A picture of one call: the call in run A, in run B, and the difference B - A."""

    row: DiffRow
    file: str  # relative to the folder of the page
    size: tuple[int, int]  # width and height, in pixels
    caption: tuple[str, ...]  # the lines below the picture
    alt: str  # a description of the picture for screen readers


def render_difference(title: str, comparison: Comparison, pictures: Sequence[DiffPicture]) -> str:
    """Return the HTML page of a comparison."""
    blame = comparison.blame
    drawn = {picture.row.rank: f"call-{picture.row.rank}" for picture in pictures}
    anchors = {row.rank: drawn.get(row.rank, f"row-{row.rank}") for row in comparison.rows}
    return _compile_template().render(
        title=title,
        verdict=verdict_text(comparison),
        first=first_text(comparison),
        rows=sorted(comparison.rows, key=lambda row: row.order),
        blame="" if blame is None else blame_text(blame),
        culprits=() if blame is None else blame.ids,
        notes=tuple(list_notes(comparison)),
        comparison=comparison,
        pictures=pictures,
        a=reversible(comparison.a),
        b=reversible(comparison.b),
        drawn=drawn,
        anchors=anchors,
        link=linked,
        plot=ours(draw_distances(comparison.rows, anchors, blame)),
        style=ours(asset("page.css") + asset("diff.css")),
    )


@functools.cache
def _compile_template() -> Template:
    environment = make_environment()
    environment.filters |= {"figure": figure_text, "shape": shape_text, "fact": fact_text}
    return environment.get_template("diff.html.j2")
