"""Render the page of a run: choose columns, charts and scripts, and link or embed its pictures."""

from __future__ import annotations

import base64
import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup
from markupsafe import escape as markup_escape

from hookcli.outside import escape
from hookcli.outside.files import OutsideError
from hookcli.outside.flags import REFERENCE
from hookcli.records.attention_records import mean_over_heads
from hookcli.records.images import describe_intensities
from hookcli.records.pictures import list_focused
from hookcli.records.report import AS_LEFT
from hookcli.records.rows import MAY_FIND_NOTHING
from hookcli.records.runs import MOST_IMAGES, choose_pictured
from hookcli.records.statistics import SHOWN
from hookcli.records.text import shape_text
from hookcli.records.uncalled import group_uncalled
from hookcli.render.draw import depth_svg
from hookcli.render.draw.gradient_flow import list_flow_layers
from hookcli.render.report import contact, templates
from hookcli.render.report.document import (
    attention_for_script,
    explain_flat,
    for_script,
    list_pictures,
    pictures_by_image,
    shorten,
)
from hookcli.render.report.templates import linked, ours, script_data
from hookcli.store.locations.names import is_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2 import Template

    from hookcli.records.images import ImageResult
    from hookcli.records.report import FolderState, ReportDocument
    from hookcli.records.rows import LayerRow

_FIGURES = {name: each.heading for name, each in SHOWN.items()}
_SHARES = {"change", "sparsity", *(name for name, each in SHOWN.items() if each.unit == "share")}
_COLUMNS = {**_FIGURES, "dead_channels": "dead", "params": "parameters"}
_IN_HEAD = "untrained"  # the finding that the head of the page already reports
_GRADIENT_COLUMNS = {"norm": "norm", "ratio": "ratio", **_FIGURES}


def render_report(
    document: ReportDocument,
    state: FolderState = AS_LEFT,
    read: Callable[[str], bytes] | None = None,
) -> str:
    """Return a run's page as HTML, which reports files that ``state`` says are missing or damaged.

    ``read`` returns the bytes of a file, to embed in the page; None makes the page link to files.
    """
    address = _embed_files(read) if read else linked
    return _compile_template().render(
        document=document, state=state, page=_make_page(document, address), address=address
    )


@functools.cache  # compiling takes 45 ms
def _compile_template() -> Template:
    environment = templates.make_environment(
        count_named=contact.count_named,
        address_part=lambda call_id: ours(quote(escape.for_page(call_id), safe=":")),
        focused=list_focused,
        breakable=templates.breakable,
        log=math.log,
        mean_over_heads=mean_over_heads,
        number=lambda value: "" if value is None else repr(value),
        shorten=shorten,
        spoken=_speak,
    )
    environment.globals |= {"assets": templates.assets, "shares": _SHARES}
    return environment.get_template("page.html.j2")


def _make_page(document: ReportDocument, address: Callable[[str], str]) -> dict[str, object]:
    layers, images = document.layers, contact.choose_images(document)
    if not document.model.trained:  # predictions of random weights say nothing
        images = [replace(image, predictions=(), unedited=()) for image in images]
    several = len(document.images) > 1
    backwards = "gradients" in (document.command or ("", *document.options))[1:2]
    index_of = {row.call_id: index for index, row in enumerate(layers)}
    anchors = {call_id: f"layer-{index}" for call_id, index in index_of.items()}
    grids = pictures_by_image(document.grids)
    drawn = [index for index, image in enumerate(images) if image.key in grids]
    start = drawn[0] if drawn else 0
    first = grids.get(images[start].key, []) if images else []
    maps, heats = pictures_by_image(document.attention_maps), pictures_by_image(document.heats)
    of_images = (
        attention_for_script(document.attention, maps.get(key, ()), heats.get(key, ()), address)
        for key in (image.key for image in images)
    )
    attention = {index: script_data(own) for index, own in enumerate(of_images) if own}
    names = ("change", "sparsity")
    known = {name: name for name in names if any(getattr(row, name) is not None for row in layers)}
    scripts: list[tuple[str, ...]] = [("page.js", "viewer.js")]
    styles = ["page.css", "viewer.css"]
    if several:
        scripts += [("contact.js",), ("firing.js",)]
        styles.append("contact.css")
    if attention:
        scripts.append(("attention.js",))
    if document.attention:
        styles.append("attention.css")
    facts: dict[str, object] = {
        "calls": [escape.for_page(row.call_id) for row in layers],
        "kinds": [escape.for_page(f"{row.module_type} {shape_text(row.shape)}") for row in layers],
        "channels": [row.channels for row in layers],
        "images": len(images),
        "first": start,
        "colours": document.colours,
    }
    pictures = _describe_pictures(document, images, index_of, address=address, start=start)
    if several:
        facts["forms"], pictures = contact.share_forms(pictures)
    return {
        "command": markup_escape(escape.for_shell(document.command or ())),
        "backwards": backwards,
        "columns": (_GRADIENT_COLUMNS if backwards else _COLUMNS) | known,
        "images": images,
        "contact": contact.make_contact_sheet(document, images, address) if several else None,
        "drawn_images": drawn,
        "may_find_nothing": document.model.task in MAY_FIND_NOTHING,
        "intensities": [text for text, _ in describe_intensities(document.images)],
        "findings": [each for each in document.findings if each.rule != _IN_HEAD],
        "top_data": script_data(contact.top_for_script(document, index_of, images)),
        "ranked_data": ours(contact.pack_ranked(document, index_of, images) if several else ""),
        "heats_of": pictures_by_image(
            heat for heat in document.heats if heat.kind not in ("attention", "rollout")
        ),
        "rollouts_of": pictures_by_image(heat for heat in document.heats if heat.kind == "rollout"),
        "links": [(name, linked(location)) for name, location in list_pictures(document)],
        "anchors": anchors,
        "index_of": index_of,
        # the calls whose pictures the page shows
        "pictured": {row.call_id for row in layers if not backwards or row.side == "grad_output"},
        "first_grids": {grid.call_id: grid for grid in reversed(first)},
        "sheets": any(is_sheet(grid.file) for grid in first),
        "flat": explain_flat(layers, first),
        "uncalled": group_uncalled((each.layer, each.reason) for each in document.uncalled),
        "without": group_uncalled(
            (row.call_id, row.reason) for row in layers if row.reason and row.norm is None
        ),
        "histograms": {
            row.call_id: ours(depth_svg.draw_histogram(document.histograms.get(row.call_id, ())))
            for row in layers
        },
        "depth": ours(_draw_by_depth(layers, anchors, backwards=backwards)),
        "data": script_data(facts),
        "grid_data": [script_data(each) for each in pictures],
        "attention_data": attention,
        "hashes": templates.hash_scripts(*(templates.assets(*names) for names in scripts)),
        "style": templates.assets(*styles),
    }


def _draw_by_depth(layers: Sequence[LayerRow], anchors: dict[str, str], *, backwards: bool) -> str:
    if not backwards:
        points = depth_svg.list_depth_points(layers)
        return depth_svg.draw_depth(layers, anchors) if len(points) > 1 else ""
    if len(flow := list_flow_layers(layers)) < 2:
        return ""
    if not any(layer.norm or layer.params for layer in flow):
        return "<p>No gradient is finite and larger than zero; the table says why.</p>"
    return depth_svg.draw_flow_svg(layers, anchors)


def _describe_pictures(
    document: ReportDocument,
    images: Sequence[ImageResult],
    index_of: Mapping[str, int],
    address: Callable[[str], str],
    start: int,
) -> list[dict[str, object]]:
    grids = pictures_by_image(document.grids)
    several = len(document.images) > 1
    few = len(document.images) <= MOST_IMAGES
    embedded = {image.key for image in choose_pictured(document.images, document.findings)}
    facts = []
    for index, image in enumerate(images):
        show = address if image.key in embedded else linked
        drawn, has_figures = grids.get(image.key, []), few or show is not linked
        own = for_script(drawn, index_of, show, is_first=index == start, has_figures=has_figures)
        if several and image.seen:
            own["seen"] = (address if few else linked)(image.seen)
        facts.append(own)
    return facts


def _embed_files(read: Callable[[str], bytes]) -> Callable[[str], str]:
    def address(file: str) -> str:
        kind = "jpeg" if file.endswith(".jpg") else "png"
        try:
            data = read(file)
        except OutsideError:
            return ""
        except OSError:
            return linked(file)
        return Markup(f"data:image/{kind};base64,{base64.b64encode(data).decode()}")  # noqa: S704

    return address


def _speak(text: str) -> str:
    """Replace the names of Python keywords in ``text`` by the options of the command line."""
    return REFERENCE.sub(lambda found: "--" + found[1].rpartition(".")[2].replace("_", "-"), text)
