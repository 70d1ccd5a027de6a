"""Write the figures and pictures of a ``hookcli.capture`` block to TensorBoard or the like.

hookcli imports no logging library: any object with ``add_scalar`` and ``add_image`` is a writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.activations.feature_maps import Tiles, take_tiles
from hookcli.config import GridStyle
from hookcli.hooks.nested import to_dense
from hookcli.records.statistics import COUNTS, STATISTICS
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


def write_log(
    writer: Any,
    step: int,
    prefix: str,
    records: Sequence[LayerRecord],
    tensors: Mapping[str, Tensor],
) -> None:
    for record in records:
        stats = record.stats
        largest = None if stats.min is None or stats.max is None else max(stats.max, -stats.min)
        figures = {"norm": stats.norm, "max_abs": largest}
        if record.call.side in ("output", "input"):
            names = (name for name in STATISTICS if name not in ("min", "max"))
            figures = {name: getattr(stats, name) for name in names}
        for name, value in (figures | {name: getattr(stats, name) for name in COUNTS}).items():
            if value is not None:
                writer.add_scalar(f"{prefix}/{record.call.id}/{name}", value, step)
    for call_id, image in draw_kept(records, tensors):
        writer.add_image(f"{prefix}/{call_id}", np.asarray(image).transpose(2, 0, 1), step)
