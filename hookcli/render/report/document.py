"""Read ``report.json`` of a run folder, and choose what the page shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hookcli.errors import OutputError, RequestError
from hookcli.outside.documents import (
    MOST_BYTES,
    DamagedError,
    FileList,
    LaterVersionError,
    decode_both,
    read_document,
    to_fields,
)
from hookcli.outside.files import read_regular
from hookcli.records.attention import AttentionMaps
from hookcli.records.pictures import Grid, HeatPicture
from hookcli.records.report import ReportDocument
from hookcli.records.runs import MOST_IMAGES, MOST_THUMBNAILS, Finding
from hookcli.store.ownership import list_damage
from hookcli.store.places.names import DOCUMENT, MANIFEST, PAGE, REQUEST, is_sheet
from hookcli.store.places.storage import TRY_AGAIN, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hookcli.records.images import ImageResult
    from hookcli.records.pictures import ChannelMaps
    from hookcli.records.rows import LayerRow
    from hookcli.store.run_files import RunFiles

PictureT = TypeVar("PictureT", Grid, HeatPicture, AttentionMaps)

_FIGURES = ("low", "high", "mean", "spread")
_AGAIN = "run hookcli inspect again"
_FLAT = {
    "NC": "one value per channel, without height and width",
    "NLC": "tokens that form no rectangle",
    "unknown": "it is not known what its axes mean",
}
_FLAT_ELSE = "its maps have no height and width"


@dataclass(frozen=True, slots=True)
class FolderState:
    """The differences between a run folder and what the run left there."""

    missing: tuple[str, ...] = ()  # pictures of the page
    damage: tuple[str, ...] = ()  # sentences about other files
    complete: bool = True  # there is a readable manifest, which is written last


AS_LEFT = FolderState()


def read_report(run: RunFiles) -> tuple[ReportDocument, FolderState]:
    """Return the content of ``report.json``, and how the folder differs from what the run left.

    Raises:
        RequestError: the folder is not that of a run, or the run is unfinished or damaged.
        OutputError: the file cannot be read.
    """
    folder, file = str(run.place), str(run.place / DOCUMENT)
    if not run.exists():
        raise RequestError(f"there is no folder {folder!r}", "give the folder of a run")
    try:
        _, report = decode_both(read_regular(run.file(DOCUMENT), MOST_BYTES), ReportDocument)
    except FileNotFoundError as error:
        known = run.has(REQUEST)
        reason = "is the folder of an unfinished run" if known else "is not the folder of a run"
        hint = "finish it: the same command again, with --resume" if known else _AGAIN
        raise RequestError(f"{folder!r} {reason}", hint) from error
    except OSError as error:
        hint = TRY_AGAIN if isinstance(error, StorageError) else ""
        raise OutputError(f"cannot read {file!r}: {error.strerror}", hint) from error
    except LaterVersionError as error:
        hint = "a later hookcli wrote it: pip install --upgrade hookcli"
        raise RequestError(f"{file!r} {error}", hint) from error
    except DamagedError as error:
        raise RequestError(f"{file!r} is damaged: {error}", _AGAIN) from error
    return report, _look_at(run, report)


def _look_at(run: RunFiles, report: ReportDocument) -> FolderState:
    files = [grid.file for grid in report.grids] + [heat.file for heat in report.heats]
    files += [grid.maps.file for grid in report.grids if grid.maps is not None]
    files += [maps.file for maps in report.attention_maps]
    files += [thumbnails.file for thumbnails in report.thumbnails]
    files += [image.seen for image in report.images if image.seen]
    missing = [file for file in dict.fromkeys(files) if run.measure(file) is None]
    listed = _read_list(run)
    damage = {} if listed is None else list_damage(listed.sizes, run.measure)
    others = [damage[name] for name in damage if name not in (PAGE, *missing)]
    return FolderState(tuple(missing), tuple(others), listed is not None)


def _read_list(run: RunFiles) -> FileList | None:
    """Return the files that the manifest lists; None if it is missing or damaged."""
    try:
        return read_document(run.file(MANIFEST), FileList)
    except (OSError, DamagedError):
        return None


def choose_pictured(
    images: Sequence[ImageResult], findings: Iterable[Finding]
) -> Sequence[ImageResult]:
    """Return the images with large pictures: all, or of more than 200 those that a finding names.

    These are at most 200.
    """
    if len(images) <= MOST_IMAGES:
        return images
    named = {key for finding in findings for key in finding.images}
    return [image for image in images if image.key in named][:MOST_IMAGES]


def pictures_by_image(pictures: Iterable[PictureT]) -> dict[str, list[PictureT]]:
    """Return the pictures of each image, by the key of the image."""
    found: dict[str, list[PictureT]] = {}
    for picture in pictures:
        found.setdefault(picture.image, []).append(picture)
    return found


def list_pictures(document: ReportDocument) -> list[tuple[str, str]]:
    """Return each image's file and its sheet or grid folder, if the page shows only some images."""
    if len(document.images) <= MOST_THUMBNAILS:
        return []
    files = {grid.image: grid.file for grid in document.grids}
    places = {
        key: file if is_sheet(file) else f"{file.rpartition('/')[0]}/"
        for key, file in files.items()
    }
    return [(image.file, places[image.key]) for image in document.images if image.key in places]


def for_script(
    grids: Sequence[Grid],
    places: Mapping[str, int],
    address: Callable[[str], str],
    *,
    is_first: bool,
    has_figures: bool = True,
) -> dict[str, object]:
    """Return what the script of the page needs to know about the grids of one image.

    Of the first image with grids, the script takes the addresses from the page. The figures of each
    channel of 1,000 images would take 12 MB, so not all pages have them.
    """
    files = list(dict.fromkeys(grid.file for grid in grids))
    facts = [
        {name: getattr(grid, name) for name in ("size", "places", "channels")}
        | {
            "call": places[grid.call_id],
            "picture": files.index(grid.file),
        }
        | ({name: getattr(grid, name) for name in _FIGURES} if has_figures else {})
        | ({"maps": _describe_maps(grid.maps, address)} if grid.maps else {})
        for grid in grids
        if grid.call_id in places
    ]
    return {"pictures": [] if is_first else [address(file) for file in files], "grids": facts}


def _describe_maps(maps: ChannelMaps, address: Callable[[str], str]) -> dict[str, object]:
    facts = to_fields(maps)
    return {"src": address(facts.pop("file")), **facts}


def explain_flat(layers: Iterable[LayerRow], grids: Iterable[Grid]) -> dict[str, str]:
    """Return, by call id, why a layer has bars instead of feature maps."""
    layouts = {row.call_id: row.layout for row in layers}
    return {
        grid.call_id: _FLAT.get(layouts.get(grid.call_id, ""), _FLAT_ELSE)
        for grid in grids
        if not grid.places
    }
