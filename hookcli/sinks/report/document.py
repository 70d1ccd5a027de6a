"""``report.json``: read from a run folder, and the parts of it that a page shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hookcli.errors import OutputError, RequestError
from hookcli.results import MOST_IMAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

DOCUMENT = "report.json"
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
    files = [grid["file"] for grid in document["grids"]]
    files += [heat["file"] for heat in document.get("heats", ())]
    files += [image["seen"] for image in document["images"] if image["seen"]]
    missing = [file for file in dict.fromkeys(files) if not (run / file).is_file()]
    return document | {"missing": missing, "complete": _is_complete(run)}


def _is_complete(run: Path) -> bool:
    """Whether the manifest, which is written last, is there and whole."""
    try:
        return isinstance(json.loads((run / "manifest.json").read_bytes()), dict)
    except (OSError, ValueError):
        return False


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


def list_pictures(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Of a run whose page shows some of its images: the file of each, and its sheet or folder of grids."""
    if len(document["images"]) <= MOST_IMAGES:
        return []
    files = {grid["image"]: grid["file"] for grid in document["grids"]}
    places = {
        key: file if file.startswith("sheets/") else f"{file.rpartition('/')[0]}/"
        for key, file in files.items()
    }
    return [(i["file"], places[i["key"]]) for i in document["images"] if i["key"] in places]


def for_script(
    grids: Sequence[dict[str, Any]], calls: Sequence[str], address: Callable[[str], str] | None
) -> dict[str, Any]:
    """What the script needs of one image's grids; of the first image's it takes the addresses from the page."""
    places = {call: index for index, call in enumerate(calls)}
    files = list(dict.fromkeys(grid["file"] for grid in grids))
    wanted = ("size", "places", "channels", "low", "high", "mean", "spread")
    facts = [
        {name: grid[name] for name in wanted}
        | {"call": places[grid["call_id"]], "picture": files.index(grid["file"])}
        for grid in grids
        if grid["call_id"] in places
    ]
    return {"pictures": [address(file) for file in files] if address else [], "grids": facts}


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
