"""A run's document as one HTML page that needs nothing but the files beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

from jinja2 import UndefinedError
from markupsafe import Markup
from markupsafe import escape as markup_escape

from hookcli import escape
from hookcli.documents import MOST_BYTES
from hookcli.errors import RequestError, first_line
from hookcli.files import read_regular
from hookcli.records.uncalled import group_uncalled
from hookcli.render.charts.depth_svg import draw_depth, draw_histogram
from hookcli.render.charts.flow_svg import draw_flow_svg
from hookcli.render.report.document import (
    choose_images,
    explain_flat,
    findings_by_image,
    for_script,
    list_pictures,
    pictures_by_image,
    read_report,
)
from hookcli.render.report.templates import asset, linked, make_environment, ours
from hookcli.store.names import DOCUMENT, is_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_FIGURES = {"mean": "mean", "std": "std", "min": "min", "max": "max", "zero_fraction": "zeros"}
_COLUMNS = {**_FIGURES, "dead_channels": "dead", "params": "parameters"}
_GRADIENT_COLUMNS = {"norm": "norm", "ratio": "ratio", **_FIGURES}


def remake_report(run: Path, *, single_file: bool = False) -> tuple[str, dict[str, Any]]:
    """The page of a run folder, and the document it was made from.

    Raises:
        RequestError: the folder is no run's, or ``report.json`` is not what a run writes.
        OutputError: it cannot be read.
    """
    try:
        document = read_report(run)
        return render_report(document, run if single_file else None), document
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        UndefinedError,
    ) as error:
        reason = f"{str(run / DOCUMENT)!r} is not what a run writes: {first_line(error)}"
        raise RequestError(reason, "run hookcli inspect again") from error


def render_report(document: dict[str, Any], run: Path | None = None) -> str:
    """The page as text. Pure, but for ``run``: the same document gives the same page.

    Args:
        document: as in ``report.json``.
        run: the run folder, whose pictures are put into the page itself; None links to them.
    """
    script = asset("page.js")
    layers, images = document["layers"], choose_images(document)
    given: set[str] = set()
    address = _embedded(run, given) if run else linked
    pictures = pictures_by_image(document, images)
    anchors = {row["call_id"]: f"layer-{index}" for index, row in enumerate(layers)}
    histograms = {
        row["call_id"]: ours(draw_histogram(document["histograms"].get(row["call_id"], ())))
        for row in layers
    }
    calls = [row["call_id"] for row in layers]
    shown_calls = [escape.for_page(call) for call in calls]
    first = pictures[0] if pictures else []
    return (
        make_environment()
        .get_template("page.html.j2")
        .render(
            document=document,
            command=markup_escape(escape.for_shell(document["command"])),
            focused=_focused,
            images=images,
            **_of_several(document),
            **_of_command(document, anchors),
            anchors=anchors,
            address=address,
            once=lambda file: "" if file in given else address(file),
            first_grids={grid["call_id"]: grid for grid in reversed(first)},
            sheets=any(is_sheet(grid["file"]) for grid in first),
            flat=explain_flat(layers, first),
            uncalled=group_uncalled(
                [(each["layer"], each["reason"]) for each in document["uncalled"]],
                {row["module_path"] for row in layers},
            ),
            written=document.get("written", {}),
            missing=document.get("missing", ()),
            histograms=histograms,
            data=ours(_script_data({"calls": shown_calls, "images": len(images)})),
            pictures=[
                ours(_script_data(for_script(mine, calls, address if index else None)))
                for index, mine in enumerate(pictures)
            ],
            script=ours(script),
            style=ours(asset("page.css")),
            hashes=ours(" ".join(_hashes([script]))),
            number=_number,
        )
    )


def _of_several(document: dict[str, Any]) -> dict[str, Any]:
    """What the page of a run over several images needs beside."""
    return {
        "count": len(document["images"]),
        "top_images": document.get("top_images", {}),
        "all_images": {image["key"]: image for image in document["images"]},
        "by_image": findings_by_image(document),
        "all_pictures": [(name, linked(place)) for name, place in list_pictures(document)],
    }


def _of_command(document: dict[str, Any], anchors: dict[str, str]) -> dict[str, Any]:
    """What depends on what was recorded: activations or gradients, with edits or without."""
    layers: list[dict[str, Any]] = document["layers"]
    backwards = document["command"][1:2] == ["gradients"]
    columns = dict(_GRADIENT_COLUMNS if backwards else _COLUMNS)
    extra = (
        name for name in ("change", "sparsity") if any(r.get(name) is not None for r in layers)
    )
    columns |= {name: name for name in extra}
    heats: dict[str, list[dict[str, Any]]] = {}
    for heat in document.get("heats", ()):
        heats.setdefault(heat["image"], []).append(heat)
    pictured = {row["call_id"] for row in layers if not backwards or row["side"] == "grad_output"}
    depth = draw_flow_svg(layers, anchors) if backwards else draw_depth(layers, anchors)
    return {
        "backwards": backwards,
        "columns": columns,
        "heats": heats,
        "pictured": pictured,
        "depth": ours(depth),
    }


def _script_data(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _focused(grid: dict[str, Any]) -> list[tuple[int, float | None]]:
    """The channels that fire more inside the box, the first five."""
    pairs = zip(grid["channels"], grid["score"], strict=True)
    more = [(channel, score) for channel, score in pairs if score is None or score > 0]
    return sorted(more, key=lambda pair: -math.inf if pair[1] is None else -pair[1])[:5]


def _embedded(run: Path, given: set[str]) -> Callable[[str], str]:
    def address(file: str) -> str:
        kind = "jpeg" if file.endswith(".jpg") else "png"
        try:
            if not (run / file).resolve().is_relative_to(run.resolve()):
                return ""
            data = read_regular(run / file, MOST_BYTES)
        except (OSError, RuntimeError):  # RuntimeError: a link that leads to itself
            return linked(file)
        given.add(file)
        return Markup(f"data:image/{kind};base64,{base64.b64encode(data).decode()}")  # noqa: S704

    return address


def _hashes(texts: Iterable[str]) -> list[str]:
    """What the Content-Security-Policy lets run: these texts and nothing else."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)
