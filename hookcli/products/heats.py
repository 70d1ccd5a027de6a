"""Choose files and titles of Grad-CAM, saliency and ``--heat`` pictures; estimate their size."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hookcli.config import BackwardStyle
from hookcli.products.product import Cost, Product
from hookcli.records.pictures import HeatPicture
from hookcli.records.text import shape_text
from hookcli.render.draw.grid_writer import frame_note
from hookcli.render.draw.heatmap import draw_heat, draw_places, draw_saliency
from hookcli.render.report.document import explain_layout
from hookcli.store.locations import names

if TYPE_CHECKING:
    from hookcli.activations.collector import BatchResult, Heat
    from hookcli.config import RunConfig
    from hookcli.products.product import Outlook, RunEnd, RunningChunk, Scope
    from hookcli.records.images import Score
    from hookcli.render.draw.grid_writer import GridWriter


_HEAT_BYTES = 3.0  # per pixel of the network's input, measured


class Heats(Product):
    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._backward = scope.config.backward or BackwardStyle()  # a style that asks for no map

    def claim(self) -> list[str]:
        asked = {
            names.HEAT: self.scope.config.heat,
            names.CAM: self._backward.cams,
            names.SALIENCY: self._backward.saliency,
        }
        return [folder for folder, is_asked in asked.items() if is_asked]

    def estimate(self, outlook: Outlook) -> Cost:
        files, size = self._backward.saliency + len(self._backward.cams), 0.0
        if self.scope.config.heat is not None:
            files = sum(layer.module_type != "Linear" for layer in outlook.layers)
            files *= len(self.scope.config.sides)
            size = files * _HEAT_BYTES * math.prod(outlook.loaded.prepare.nominal_shape[-2:])
        pictures = self.scope.images * self.scope.formats
        return Cost(files * pictures, size * pictures)

    def collect(self, result: BatchResult, running: RunningChunk, writer: GridWriter) -> None:
        for heat in result.heats:
            picture = _write_heat(heat, running.show(heat.image), result.score, writer)
            running.chunk.heats.append(picture)
            self.note_pictures(running.chunk, [picture.file])

    def describe(self, end: RunEnd) -> dict[str, object]:
        asked = ",".join(self._backward.cams).split(",")  # the page keeps this order

        def find_form(heat: HeatPicture) -> int:
            path = heat.call_id.partition("#")[0]
            fits = (n for n, form in enumerate(asked) if fnmatchcase(path, form))
            return next(fits, len(asked))

        heats = sorted(end.totals.heats, key=find_form)
        return {"heats": heats, "heatless": explain_heatless(end, self.scope.config)}


def explain_heatless(end: RunEnd, config: RunConfig) -> dict[str, str]:
    drawn = {heat.call_id for heat in end.totals.heats}
    rows = () if config.heat is None else end.rows
    return {row.call_id: explain_layout(row.layout) for row in rows if row.call_id not in drawn}


def _write_heat(heat: Heat, seen: bytes, score: Score | None, writer: GridWriter) -> HeatPicture:
    of = ""
    if score is not None:
        of = score.kind + (f" of {score.category} ({score.target})" if score.category else "")
    values, source = heat.values.numpy(), writer.title_of(heat.image)
    call_id = "" if heat.call is None else heat.call.id
    if heat.call is None:
        file = names.saliency_file(heat.image)
        canvas = draw_saliency(seen, values, [f"Saliency   {source}", of])
    elif heat.layout is not None and heat.layout.channel_axis is not None:
        file = names.picture_file(names.HEAT, heat.image, names.grid_name(heat.call))
        form = f"{shape_text(heat.shape)}   {heat.layout.text}"
        title = f"{call_id}   {form}   {source}{frame_note(heat.layout, heat.shape)}"
        of = f"the {heat.kind} of the {heat.shape[heat.layout.channel_axis]} channels"
        canvas = draw_places(seen, values, title, of)
    else:
        file = names.picture_file(names.CAM, heat.image, names.grid_name(heat.call))
        canvas = draw_heat(seen, values, [f"Grad-CAM of {call_id}   {source}", of])
    writer.write_over_photo(file, canvas)
    return HeatPicture(heat.image, heat.kind, call_id, file)
