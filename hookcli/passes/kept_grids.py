"""Draw the tensors that a ``hookcli.capture`` block kept: one grid of channels per tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.activations.feature_maps import Tiles, take_tiles
from hookcli.config import GridStyle
from hookcli.hooks.dense import to_dense
from hookcli.records.text import shape_text
from hookcli.render.draw.canvas import colormap_of, load_palette
from hookcli.render.draw.grid import draw_grid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from PIL import Image
    from torch import Tensor

    from hookcli.records.layer_records import LayerRecord

_ACTIVATION = GridStyle(top=16)
_GRADIENT = GridStyle(top=16, signed=True)


def draw_kept(
    records: Sequence[LayerRecord], tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, Image.Image]]:
    """Yield the call id and a small RGB picture of each kept tensor whose channels are pictures.

    The picture is a grid of up to 16 channels of the batch's first image.
    """
    for record in records:
        tensor = tensors.get(record.call.id)
        if tensor is None or not record.layout.is_spatial or not tensor.numel():
            continue
        style = _GRADIENT if record.call.side.startswith("grad_") else _ACTIVATION
        tiles = take_tiles(to_dense(tensor)[:1].cpu(), record.layout, style)
        if not isinstance(tiles, Tiles):
            continue
        heading = [f"{record.call.id}   {shape_text(record.stats.shape)}"]
        labels = [str(channel) for channel in tiles.channels.tolist()]
        canvas, _ = draw_grid(tiles.levels.numpy(), labels, heading, style.tile)
        yield record.call.id, canvas.to_image(load_palette(colormap_of(style))).convert("RGB")
