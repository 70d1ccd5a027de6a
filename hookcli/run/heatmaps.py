"""Grad-CAM and saliency maps, drawn over what the network saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.records.pictures import HeatPicture
from hookcli.render.draw.grid_writer import grid_name
from hookcli.render.draw.heatmap import draw_heat, draw_saliency
from hookcli.store.names import cam_file, saliency_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.activations.collector import BatchResult, Heat
    from hookcli.records.images import Score


def write_heats(
    write: Callable[[str, bytes], str], result: BatchResult, seen: bytes
) -> list[HeatPicture]:
    """Draw the maps of an image into the run folder.

    Args:
        write: writes a file of the run folder.
        result: the result of the image.
        seen: the JPEG of what the network saw of the image.

    Raises:
        OutputError: a file cannot be written.
    """
    return [_write_heat(write, heat, seen, result.score) for heat in result.heats]


def _write_heat(
    write: Callable[[str, bytes], str], heat: Heat, seen: bytes, score: Score | None
) -> HeatPicture:
    of = ""
    if score is not None:
        of = score.kind + (f" of {score.category} ({score.target})" if score.category else "")
    values = heat.values.numpy()
    if heat.call is None:
        file = saliency_file(heat.image)
        data = draw_saliency(seen, values, [f"Saliency of {heat.image}", of])
        write(file, data)
        return HeatPicture(heat.image, heat.kind, "", file)
    file = cam_file(heat.image, grid_name(heat.call))
    data = draw_heat(seen, values, [f"Grad-CAM of {heat.call.id}   {heat.image}", of])
    write(file, data)
    return HeatPicture(heat.image, heat.kind, heat.call.id, file)
