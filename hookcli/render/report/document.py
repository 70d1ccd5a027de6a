"""Collect facts on pictures for the script of a run's page; explain why calls have no maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hookcli.outside import escape
from hookcli.outside.documents import to_fields
from hookcli.records.attention_records import AttentionMaps
from hookcli.records.pictures import Grid, HeatPicture
from hookcli.records.runs import MOST_THUMBNAILS
from hookcli.store.locations.names import is_sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hookcli.records.attention_records import AttentionRow
    from hookcli.records.pictures import ChannelMaps
    from hookcli.records.report import ReportDocument
    from hookcli.records.rows import LayerRow

PictureT = TypeVar("PictureT", Grid, HeatPicture, AttentionMaps)

_FIGURES = ("low", "high", "mean", "spread")
_NAMED = ("image", "call_id")  # left out: where the page keeps the facts implies them
_FLAT = {
    "NC": "one value per channel, without height and width",
    "NLC": "tokens that form no rectangle",
    "unknown": "the meaning of its axes is unknown",
}


def pictures_by_image(pictures: Iterable[PictureT]) -> dict[str, list[PictureT]]:
    found: dict[str, list[PictureT]] = {}
    for picture in pictures:
        found.setdefault(picture.image, []).append(picture)
    return found


def list_pictures(document: ReportDocument) -> list[tuple[str, str]]:
    # Images and their sheets or folders of grids, if the page does not show all images
    if len(document.images) <= MOST_THUMBNAILS:
        return []
    links = {
        grid.image: grid.file if is_sheet(grid.file) else f"{grid.file.rpartition('/')[0]}/"
        for grid in document.grids
    }
    return [(image.file, links[image.key]) for image in document.images if image.key in links]


def for_script(
    grids: Sequence[Grid],
    index_of: Mapping[str, int],
    address: Callable[[str], str],
    *,
    is_first: bool,
    has_figures: bool = True,
) -> dict[str, object]:
    # ``has_figures`` includes four figures of each channel, which take 12 MB for 1,000 images.
    files = list(dict.fromkeys(grid.file for grid in grids))
    facts = [
        {name: getattr(grid, name) for name in ("size", "places", "channels")}
        | {"call": index_of[grid.call_id], "picture": files.index(grid.file)}
        | ({name: getattr(grid, name) for name in _FIGURES} if has_figures else {})
        | ({"maps": _describe_maps(grid.maps, address)} if grid.maps else {})
        for grid in grids
        if grid.call_id in index_of
    ]
    return {"pictures": [] if is_first else [address(file) for file in files], "grids": facts}


def _describe_maps(maps: ChannelMaps, address: Callable[[str], str]) -> dict[str, object]:
    facts = to_fields(maps)
    return {"src": address(facts.pop("file")), **facts}


def explain_layout(layout: str) -> str:
    return _FLAT.get(layout, "its maps have no height and width")


def explain_flat(layers: Iterable[LayerRow], grids: Iterable[Grid]) -> dict[str, str]:
    layouts = {row.call_id: row.layout for row in layers}
    flat = [grid.call_id for grid in grids if not grid.places]
    return {call_id: explain_layout(layouts.get(call_id, "")) for call_id in flat}


def attention_for_script(
    rows: Iterable[AttentionRow],
    maps: Iterable[AttentionMaps],
    heats: Iterable[HeatPicture],
    address: Callable[[str], str],
) -> list[dict[str, object]]:
    maps_of = {each.call_id: each for each in maps}
    drawn_of = {each.call_id: each.file for each in heats if each.kind == "attention"}
    facts: list[dict[str, object]] = []
    for row in rows:
        own, drawn = maps_of.get(row.call_id), drawn_of.get(row.call_id)
        if own is not None or drawn is not None:
            facts.append(
                {
                    "call": escape.for_page(shorten(row.call_id)),
                    "entropy": row.entropy if row.images == 1 else (),  # else a mean over images
                    "drawn": None if drawn is None else address(drawn),
                    "maps": None if own is None else _describe_attention(own, address(own.file)),
                }
            )
    return facts


def _describe_attention(maps: AttentionMaps, address: str) -> dict[str, object]:
    known = to_fields(maps)
    return {"src": address, **{name: known[name] for name in known if name not in _NAMED}}


def shorten(call_id: str) -> str:
    return call_id.removeprefix("attention:")
