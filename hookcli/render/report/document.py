"""``report.json``: read from a run folder, and the parts of it that a page shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hookcli.documents import (
    MOST_BYTES,
    DamagedError,
    FileList,
    LaterVersionError,
    Scalar,
    Whole,
    decode_both,
    read_document,
)
from hookcli.errors import OutputError, RequestError
from hookcli.files import read_regular
from hookcli.records.images import ImageResult, SkippedImage
from hookcli.records.pictures import Grid, HeatPicture
from hookcli.records.rows import LayerRow
from hookcli.records.runs import MOST_IMAGES, Finding, ModelInfo
from hookcli.store.names import DOCUMENT, MANIFEST, PAGE, REQUEST, is_sheet
from hookcli.store.ownership import list_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


_AGAIN = "run hookcli inspect again"
_FLAT = {
    "NC": "one value a channel, without height and width",
    "NLC": "tokens that form no rectangle",
    "unknown": "it is not known what its axes mean",
}
_FLAT_ELSE = "its maps have no height and width"


@dataclass(frozen=True, slots=True)
class UncalledLayer:
    """A selected layer that did not run, and why."""

    layer: str
    reason: str


@dataclass(frozen=True, slots=True)
class TopChannel:
    """A channel, the images that fire it most, and its largest value in each; None where that is not finite."""

    channel: int
    images: tuple[str, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class FocusBox:
    """The box of ``--focus``, as given and as shares of the picture that is shown."""

    box: Annotated[tuple[int, ...], Meta(min_length=4, max_length=4)]
    seen: Annotated[tuple[float, ...], Meta(min_length=4, max_length=4)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """What ``report.json`` holds: all that the page of a run is made of.

    Attributes:
        command: the words that repeat the run.
        model: which model ran.
        versions: of what the run depended on.
        images: those that went through the model.
        skipped: those that did not.
        uncalled: selected layers that did not run.
        findings: what deserves a look.
        layers: the rows of ``layers.csv``.
        histograms: by call id, see ``LayerRecord.histogram``.
        grids: what the pictures show.
        focus: the box of ``--focus``; None without one.
        heats: maps that were drawn over images.
        written: by call id, which module wrote over what the call returned.
        top_images: by call id, the channels with the images that fire them most.
    """

    command: Annotated[tuple[str, ...], Meta(min_length=2)]
    model: ModelInfo
    versions: Annotated[dict[str, Scalar], Meta(min_length=1)]
    images: tuple[ImageResult, ...]
    skipped: tuple[SkippedImage, ...]
    uncalled: tuple[UncalledLayer, ...]
    findings: tuple[Finding, ...]
    layers: tuple[LayerRow, ...]
    histograms: dict[str, tuple[Whole, ...]]
    grids: tuple[Grid, ...]
    focus: FocusBox | None
    heats: tuple[HeatPicture, ...] = ()
    written: dict[str, str] = field(default_factory=dict)
    top_images: dict[str, tuple[TopChannel, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FolderState:
    """What of a run folder is not as the run left it.

    Attributes:
        missing: pictures of the page that are not there.
        damage: what else is missing or of another size, as sentences.
        complete: whether the run came to its end, so that the folder has a manifest.
    """

    missing: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    complete: bool = True


AS_LEFT = FolderState()


def read_report(run: Path) -> tuple[ReportDocument, FolderState]:
    """What ``report.json`` of a run folder holds, and what of the folder is not as the run left it.

    Raises:
        RequestError: the folder is no run's, the run did not come to its end, or the file is damaged.
        OutputError: it cannot be read.
    """
    if not run.is_dir():
        raise RequestError(f"there is no folder {str(run)!r}", "give the folder of a run")
    try:
        _, report = decode_both(read_regular(run / DOCUMENT, MOST_BYTES), ReportDocument)
    except FileNotFoundError as error:
        known = (run / REQUEST).exists()
        reason = "is of a run that did not come to its end" if known else "is not a run's folder"
        raise RequestError(f"{str(run)!r} {reason}", _AGAIN) from error
    except OSError as error:
        raise OutputError(f"cannot read {str(run / DOCUMENT)!r}: {error.strerror}") from error
    except LaterVersionError as error:
        hint = "a later hookcli wrote it: pip install --upgrade hookcli"
        raise RequestError(f"{str(run / DOCUMENT)!r} {error}", hint) from error
    except DamagedError as error:
        raise RequestError(f"{str(run / DOCUMENT)!r} is damaged: {error}", _AGAIN) from error
    return report, _look_at(run, report)


def _look_at(run: Path, report: ReportDocument) -> FolderState:
    files = [grid.file for grid in report.grids] + [heat.file for heat in report.heats]
    files += [image.seen for image in report.images if image.seen]
    missing = [file for file in dict.fromkeys(files) if not _is_there(run, file)]
    listed = _read_list(run)
    damage = {} if listed is None else list_damage(run, listed.sizes)
    others = [damage[name] for name in damage if name not in (PAGE, *missing)]
    return FolderState(tuple(missing), tuple(others), listed is not None)


def _is_there(run: Path, file: str) -> bool:
    try:
        return (run / file).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _read_list(run: Path) -> FileList | None:
    """What the manifest, which is written last, says of the files; None where it is not there or damaged."""
    try:
        return read_document(run / MANIFEST, FileList)
    except (OSError, DamagedError):
        return None


def choose_images(
    images: Sequence[ImageResult], findings: Iterable[Finding]
) -> Sequence[ImageResult]:
    """All images; of more than 200 those with a finding of their own, or the first for want of any."""
    if len(images) <= MOST_IMAGES:
        return images
    named = findings_by_image(findings)
    return [image for image in images if image.key in named][:MOST_IMAGES] or images[:1]


def findings_by_image(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings that name an image, by its key."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        for key in finding.images:
            found.setdefault(key, []).append(finding)
    return found


def grids_by_image(grids: Iterable[Grid]) -> dict[str, list[Grid]]:
    """The grids of each image, by its key."""
    found: dict[str, list[Grid]] = {}
    for grid in grids:
        found.setdefault(grid.image, []).append(grid)
    return found


def list_pictures(document: ReportDocument) -> list[tuple[str, str]]:
    """Of a run whose page shows some of its images: the file of each, and its sheet or folder of grids."""
    if len(document.images) <= MOST_IMAGES:
        return []
    files = {grid.image: grid.file for grid in document.grids}
    places = {
        key: file if is_sheet(file) else f"{file.rpartition('/')[0]}/"
        for key, file in files.items()
    }
    return [(image.file, places[image.key]) for image in document.images if image.key in places]


def for_script(
    grids: Sequence[Grid], places: Mapping[str, int], address: Callable[[str], str] | None
) -> dict[str, object]:
    """What the script needs of one image's grids; of the first image's it takes the addresses from the page.

    Args:
        grids: of the image.
        places: of each call id among those of the page.
        address: of a picture; None for the first image.
    """
    files = list(dict.fromkeys(grid.file for grid in grids))
    facts = [
        {
            "size": grid.size,
            "places": grid.places,
            "channels": grid.channels,
            "low": grid.low,
            "high": grid.high,
            "mean": grid.mean,
            "spread": grid.spread,
            "call": places[grid.call_id],
            "picture": files.index(grid.file),
        }
        for grid in grids
        if grid.call_id in places
    ]
    return {"pictures": [address(file) for file in files] if address else [], "grids": facts}


def explain_flat(layers: Iterable[LayerRow], grids: Iterable[Grid]) -> dict[str, str]:
    """By call id, why a layer has no feature maps, and bars instead."""
    layouts = {row.call_id: row.layout for row in layers}
    return {
        grid.call_id: _FLAT.get(layouts.get(grid.call_id, ""), _FLAT_ELSE)
        for grid in grids
        if not grid.places
    }
