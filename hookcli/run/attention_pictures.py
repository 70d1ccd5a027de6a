"""Attention drawn over what the network saw: the heads of a query, and the maps for the page."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hookcli.records.attention import AttentionMaps
from hookcli.records.pictures import HeatPicture
from hookcli.render.draw.attention_grid import draw_heads, draw_maps
from hookcli.render.draw.grid_writer import grid_name
from hookcli.store.names import attention_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.activations.image_attention import ImageAttention

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

    @property
    def files(self) -> list[str]:
        """The names of all files."""
        return [each.file for each in self.pictures] + [each.file for each in self.maps]


def write_attention(
    write: Callable[[str, bytes], str], seen: bytes, attention: Sequence[ImageAttention]
) -> DrawnAttention:
    """Draw the attention of an image into the run folder.

    Args:
        write: writes a file of the run folder.
        seen: the JPEG of what the network saw of the image.
        attention: what each attention call does with the image.

    Raises:
        OutputError: a file cannot be written.
    """
    drawn = DrawnAttention()
    for each in attention:
        if each.query is not None:
            name = _ROLLOUT if each.call is None else _name_of(each)
            file = write(attention_file(each.image, name), _draw_query(seen, each))
            kind = "rollout" if each.call is None else "attention"
            call_id = "" if each.call is None else each.call.id
            drawn.pictures.append(HeatPicture(each.image, kind, call_id, file))
        if each.levels is not None and each.call is not None and each.row is not None:
            name = _name_of(each).removesuffix(".png") + ".maps.png"
            file = write(attention_file(each.image, name), draw_maps(each.levels.numpy()))
            maps = AttentionMaps(
                each.image,
                each.call.id,
                file,
                each.row.heads,
                each.row.query_grid,
                each.query_grid,
                each.map_grid,
                each.is_thinned,
            )
            drawn.maps.append(maps)
    return drawn


def _name_of(attention: ImageAttention) -> str:
    assert attention.call is not None  # noqa: S101
    return grid_name(replace(attention.call, side="output"))


def _draw_query(seen: bytes, attention: ImageAttention) -> bytes:
    assert attention.query is not None  # noqa: S101
    query = "of the class token" if attention.mark is None else "of the framed patch"
    if attention.call is None or attention.row is None:
        what, labels = f"Attention rollout {query}", ["all layers"]
    else:
        what = f"Attention of {attention.call.layer.label} {query}"
        entropies = attention.row.entropy
        labels = [
            f"head {head}" + ("" if entropy is None else f", entropy {entropy:.2f}")
            for head, entropy in enumerate(entropies)
        ]
    heading = [f"{what}   {attention.image}"]
    return draw_heads(seen, attention.query.numpy(), labels, heading, attention.mark)
