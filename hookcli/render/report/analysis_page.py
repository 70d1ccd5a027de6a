"""Render the page of an analysis: the parts that all verbs share, and a section for its verb."""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from markupsafe import escape as markup_escape

from hookcli.outside import escape
from hookcli.records.text import figure_text
from hookcli.render.draw.figures import list_colors
from hookcli.render.report import contact, templates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from hookcli.records.analysis import AnalysisDocument, ImagePictures
    from hookcli.render.report.contact import Group, Sort


def render_analysis(
    verb: str, title: str, document: AnalysisDocument, values: Mapping[str, object]
) -> str:
    return _compile_template(verb).render(
        verb=verb,
        title=title,
        document=document,
        command=markup_escape(escape.for_shell(document.command or ())),
        style=templates.assets("page.css", "contact.css", "analysis.css"),
        link=templates.linked,
        ramp=list_colors(64),
        **values,
    )


@functools.cache
def _compile_template(verb: str) -> Template:
    environment = templates.make_environment(
        data=templates.script_data, hash=templates.hash_scripts, number=figure_text, fields=asdict
    )
    return environment.select_template([f"{verb}.html.j2", "analysis.html.j2"])


def arrange_images(
    pictures: ImagePictures,
    groups: Sequence[Group],
    sorts: Mapping[str, Sort],
    total: int,
    shown: str = "those of which the run kept a picture",
) -> dict[str, Any]:
    note = ""
    if len(pictures.images) < total:
        note = f"{len(pictures.images):,} of {total:,} images are shown: {shown}. "
        note += "The tables have all."
    numbered, link = dict(enumerate(groups)), templates.linked
    return contact.lay_out(
        pictures.images, pictures.thumbnails, numbered, link, word="group", note=note, sorts=sorts
    )
