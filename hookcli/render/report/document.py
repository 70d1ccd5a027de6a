"""What the page shows of the document of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hookcli.outside.documents import to_fields
from hookcli.records.attention import AttentionMaps
from hookcli.records.pictures import Grid, HeatPicture
from hookcli.records.runs import MOST_THUMBNAILS
from hookcli.store.places.names import is_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hookcli.records.pictures import ChannelMaps
    from hookcli.records.report import ReportDocument
    from hookcli.records.rows import LayerRow

PictureT = TypeVar("PictureT", Grid, HeatPicture, AttentionMaps)

_FIGURES = ("low", "high", "mean", "spread")
_FLAT = {
    "NC": "one value per channel, without height and width",
    "NLC": "tokens that form no rectangle",
    "unknown": "the meaning of its axes is unknown",
}
_FLAT_ELSE = "its maps have no height and width"


def pictures_by_image(pictures: Iterable[PictureT]) -> dict[str, list[PictureT]]:
    """Return the pictures of each image, by the key of the image."""
    found: dict[str, list[PictureT]] = {}
    for picture in pictures:
        found.setdefault(picture.image, []).append(picture)
    return found


def list_pictures(document: ReportDocument) -> list[tuple[str, str]]:
    """If the page shows only some images, return each image's file and its sheet or grid folder."""
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

    For the first image with grids, the script reads the addresses from the page. Some pages leave
    out the figures of each channel, which for 1,000 images would take 12 MB.
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
