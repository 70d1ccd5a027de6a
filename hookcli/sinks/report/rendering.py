"""A run's document as one HTML page that needs nothing but the files beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hookcli.errors import OutputError, RequestError
from hookcli.sinks.report.plot import draw_depth, draw_histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

DOCUMENT = "report.json"
MOST_IMAGES = 200
_KEYS = {
    "command", "model", "versions", "images", "skipped", "uncalled", "findings", "layers", "histograms",
    "grids", "focus",
}  # fmt: skip


def read_document(run: Path) -> dict[str, Any]:
    """What ``report.json`` of a run folder holds.

    Raises:
        RequestError: the folder is no run's, or the run did not come to its end.
        OutputError: it cannot be read.
    """
    if not run.is_dir():
        raise RequestError(f"there is no folder {str(run)!r}", "give the folder of a run")
    try:
        document = json.loads((run / DOCUMENT).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = (run / "run.json").exists()
        reason = "is of a run that did not come to its end" if known else "is not a run's folder"
        raise RequestError(f"{str(run)!r} {reason}", "run hookcli inspect again") from error
    except OSError as error:
        raise OutputError(f"cannot read {str(run / DOCUMENT)!r}: {error.strerror}") from error
    except ValueError as error:
        raise RequestError(
            f"{str(run / DOCUMENT)!r} is damaged", "run hookcli inspect again"
        ) from error
    if not isinstance(document, dict) or not document.keys() >= _KEYS or not document["versions"]:
        raise RequestError(f"{str(run / DOCUMENT)!r} is not a run's", "run hookcli inspect again")
    files = [grid["file"] for grid in document["grids"]]
    files += [image["seen"] for image in document["images"] if image["seen"]]
    return document | {"missing": [file for file in files if not (run / file).is_file()]}


def render_report(document: dict[str, Any], run: Path | None = None) -> str:
    """The page as text. Pure, but for ``run``: the same document gives the same page.

    Args:
        document: as in ``report.json``.
        run: the run folder, whose pictures are put into the page itself; None links to them.
    """
    environment = Environment(
        loader=PackageLoader("hookcli.sinks.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = _figure
    script = _asset("page.js")
    style = _asset("page.css")
    layers = document["layers"]
    images = document["images"][:MOST_IMAGES]
    shown = {image["key"] for image in images}
    grids = [grid for grid in document["grids"] if grid["image"] in shown]
    address = _embedded(run) if run else _linked
    facts = [{**grid, "src": address(grid["file"])} for grid in grids]
    seen = {image["key"]: address(image["seen"]) for image in images if image.get("seen")}
    anchors = {row["call_id"]: f"layer-{index}" for index, row in enumerate(layers)}
    histograms = {
        row["call_id"]: _ours(draw_histogram(document["histograms"].get(row["call_id"], ())))
        for row in layers
    }
    data = {"grids": facts, "seen": seen, "images": [image["key"] for image in images]}
    return environment.get_template("page.html.j2").render(
        document=document,
        command=shlex.join(document["command"]),
        images=images,
        left_out=len(document["images"]) - len(images),
        anchors=anchors,
        first_grids={grid["call_id"]: grid for grid in reversed(facts)},
        missing=document.get("missing", ()),
        seen=seen,
        depth=_ours(draw_depth(layers, anchors)),
        histograms=histograms,
        data=_ours(_script_data(data)),
        script=_ours(script),
        style=_ours(style),
        hashes=_ours(" ".join(_hashes([script]))),
        number=_number,
    )


def _ours(text: str) -> Markup:
    """Text that was written or escaped here, to stand in the page as it is."""
    return Markup(text)  # noqa: S704


def _script_data(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _linked(file: str) -> str:
    return quote(file)


def _embedded(run: Path) -> Any:
    def address(file: str) -> str:
        kind = "jpeg" if file.endswith(".jpg") else "png"
        if not (run / file).resolve().is_relative_to(run.resolve()):
            return ""
        try:
            data = (run / file).read_bytes()
        except OSError:
            return quote(file)
        return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"

    return address


def _hashes(texts: Iterable[str]) -> list[str]:
    """What the Content-Security-Policy lets run: these texts and nothing else."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def _asset(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)
