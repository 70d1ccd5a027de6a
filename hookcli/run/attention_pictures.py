"""Attention drawn over what the network saw: the heads of a query, and the maps for the page."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.records.attention import AttentionMaps
from hookcli.records.pictures import HeatPicture
from hookcli.render.draw.attention_grid import draw_heads, draw_maps
from hookcli.render.draw.grid_writer import grid_name, name_source
from hookcli.store.places.names import attention_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.activations.image_attention import ImageAttention, QueryMap
    from hookcli.records.attention import AttentionRow
    from hookcli.render.draw.grid_writer import GridWriter

_ROLLOUT = "000_rollout.png"


@dataclass(slots=True)
class DrawnAttention:
    """The pictures that were written.

    Attributes:
        pictures: the heads of a query of each call, and the rollout.
        maps: the maps of all queries of each call, for the page.
    """

    pictures: list[HeatPicture] = field(default_factory=list)
    maps: list[AttentionMaps] = field(default_factory=list)


def write_attention(
    write: Callable[[str, bytes], str], writer: GridWriter, seen: bytes, attention: ImageAttention
) -> DrawnAttention:
    """Draw the attention of an image into the run folder.

    Args:
        write: writes a file of the run folder.
        writer: writes pictures into the run folder.
        seen: the JPEG of what the network saw of the image.
        attention: what the attention calls do with the image.

    Raises:
        OutputError: a file cannot be written.
    """
    drawn, image = DrawnAttention(), attention.image
    source = name_source(writer.model, image)
    if attention.rollout is not None:
        what = f"Attention rollout {_name_query(attention.rollout)}   {source}"
        file = attention_file(image, _ROLLOUT)
        _write(writer, file, seen, attention.rollout, ["all layers"], what)
        drawn.pictures.append(HeatPicture(image, "rollout", "", file))
    for each in attention.calls:
        name, call_id = grid_name(replace(each.call, side="output")), each.call.id
        if each.query is not None:
            what = f"Attention of {each.call.layer.label} {_name_query(each.query)}   {source}"
            file = attention_file(image, name)
            _write(writer, file, seen, each.query, _label_heads(each.row), what)
            drawn.pictures.append(HeatPicture(image, "attention", call_id, file))
        if (maps := each.maps) is not None:
            name = name.removesuffix(".png") + ".maps.png"
            file = write(attention_file(image, name), draw_maps(maps.levels.numpy()))
            grids = (each.row.query_grid, maps.query_grid, maps.map_grid)
            kinds = (maps.is_thinned, maps.has_class_token)
            drawn.maps.append(AttentionMaps(image, call_id, file, each.row.heads, *grids, *kinds))
    return drawn


def _name_query(query: QueryMap) -> str:
    return "of the class token" if query.mark is None else "of the framed patch"


def _label_heads(row: AttentionRow) -> list[str]:
    """Return a label for each head; its entropy is the mean over all queries."""
    return [
        f"head {head}" + ("" if entropy is None else f", entropy {entropy:.2f}")
        for head, entropy in enumerate(row.entropy)
    ]


def _write(
    writer: GridWriter,
    file: str,
    seen: bytes,
    query: QueryMap,
    labels: Sequence[str],
    heading: str,
) -> None:
    tile = writer.style.tile
    canvas = draw_heads(seen, query.values.numpy(), labels, [heading], query.mark, tile)
    writer.write_over_photo(file, canvas)
