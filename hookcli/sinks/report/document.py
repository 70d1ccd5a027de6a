"""``report.json``: read from a run folder, and the parts of it that a page shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hookcli.errors import OutputError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

DOCUMENT = "report.json"
MOST_IMAGES = 200
_FLAT = {
    "NC": "one value a channel, without height and width",
    "NLC": "tokens that form no rectangle",
    "unknown": "it is not known what its axes mean",
}
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
    files = [grid.get("file", "") for grid in document["grids"]]
    files += [image["seen"] for image in document["images"] if image.get("seen")]
    return document | {"missing": [file for file in files if not (run / file).is_file()]}


def choose_images(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All images; of more than 200 those with a finding of their own, or the first for want of any."""
    images: list[dict[str, Any]] = document["images"]
    if len(images) <= MOST_IMAGES:
        return images
    named = findings_by_image(document)
    return [image for image in images if image["key"] in named][:MOST_IMAGES] or images[:1]


def findings_by_image(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The findings that name an image, by its key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in document["findings"]:
        for key in finding.get("images", ()):
            found.setdefault(key, []).append(finding)
    return found


def pictures_by_image(
    document: dict[str, Any], images: Iterable[dict[str, Any]]
) -> list[list[dict[str, Any]]]:
    """The grids of each image that is shown."""
    grids: dict[str, list[dict[str, Any]]] = {}
    for grid in document["grids"]:
        grids.setdefault(grid["image"], []).append(grid)
    return [grids.get(image["key"], []) for image in images]


def for_script(
    grids: Iterable[dict[str, Any]], calls: list[str], address: Callable[[str], str] | None
) -> list[dict[str, Any]]:
    """What the script needs of one image's grids; of the first image's it takes the addresses from the page."""
    places = {call: index for index, call in enumerate(calls)}
    wanted = ("size", "places", "channels", "low", "high", "mean", "spread")
    return [
        {name: grid[name] for name in wanted}
        | {"call": places[grid["call_id"]]}
        | ({"src": address(grid["file"])} if address else {})
        for grid in grids
        if grid["call_id"] in places
    ]


def explain_flat(
    layers: Iterable[dict[str, Any]], grids: Iterable[dict[str, Any]]
) -> dict[str, str]:
    """By call id, why a layer has no feature maps, and bars instead."""
    layouts = {row["call_id"]: row["layout"] for row in layers}
    return {
        grid["call_id"]: _FLAT.get(
            layouts.get(grid["call_id"], ""), "its maps have no height and width"
        )
        for grid in grids
        if not grid["places"]
    }
