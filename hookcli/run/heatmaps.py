"""Grad-CAM and saliency maps, drawn over what the network saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.records.pictures import HeatPicture
from hookcli.render.draw.grid_writer import grid_name, name_source
from hookcli.render.draw.heatmap import draw_heat, draw_saliency
from hookcli.store.places.names import cam_file, saliency_file

if TYPE_CHECKING:
    from hookcli.activations.collector import BatchResult, Heat
    from hookcli.records.images import Score
    from hookcli.render.draw.grid_writer import GridWriter


def write_heats(writer: GridWriter, result: BatchResult, seen: bytes) -> list[HeatPicture]:
    """Draw the maps of an image into the run folder.

    Args:
        writer: writes pictures into the run folder.
        result: the result of the image.
        seen: the JPEG of what the network saw of the image.

    Raises:
        OutputError: a file cannot be written.
    """
    return [_write_heat(writer, heat, seen, result.score) for heat in result.heats]


def _write_heat(writer: GridWriter, heat: Heat, seen: bytes, score: Score | None) -> HeatPicture:
    of = ""
    if score is not None:
        of = score.kind + (f" of {score.category} ({score.target})" if score.category else "")
    values = heat.values.numpy()
    if heat.call is None:
        file = saliency_file(heat.image)
        title = f"Saliency   {name_source(writer.model, heat.image)}"
        writer.write_over_photo(file, draw_saliency(seen, values, [title, of]))
        return HeatPicture(heat.image, heat.kind, "", file)
    file = cam_file(heat.image, grid_name(heat.call))
    title = f"Grad-CAM of {heat.call.id}   {name_source(writer.model, heat.image)}"
    writer.write_over_photo(file, draw_heat(seen, values, [title, of]))
    return HeatPicture(heat.image, heat.kind, heat.call.id, file)
