"""The facts about attention that the page of a run needs: entropy, maps and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.outside import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hookcli.records.attention import AttentionMaps, AttentionRow
    from hookcli.records.pictures import HeatPicture


def attention_for_script(
    rows: Iterable[AttentionRow],
    maps: Iterable[AttentionMaps],
    heats: Iterable[HeatPicture],
    address: Callable[[str], str],
) -> list[dict[str, object]]:
    """Return the facts about the attention calls of one image that have pictures."""
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
                    "maps": None if own is None else _describe(own, address(own.file)),
                }
            )
    return facts


def _describe(maps: AttentionMaps, address: str) -> dict[str, object]:
    return {
        "src": address,
        "file": escape.for_page(maps.file),
        "heads": maps.heads,
        "patches": maps.patch_grid,
        "queries": maps.query_grid,
        "size": maps.map_grid,
        "thinned": maps.is_thinned,
        "token": maps.has_class_token,
    }


def shorten(call_id: str) -> str:
    """Return the id of an attention call without the prefix ``attention:``."""
    return call_id.removeprefix("attention:")
