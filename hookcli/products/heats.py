"""Draw maps over images (Grad-CAM, saliency and ``--heat``), and estimate their size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hookcli.config import BackwardStyle
from hookcli.products.product import Cost, Product
from hookcli.records.pictures import CAM_METHODS, CAM_PASSES, HeatPicture
from hookcli.records.text import shape_text
from hookcli.render.draw.grid_writer import frame_note
from hookcli.render.draw.heatmap import draw_heat, draw_places, draw_saliency, find_trouble
from hookcli.render.report.document import explain_layout
from hookcli.store.locations import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.activations.collector import BatchResult, Heat
    from hookcli.config import RunConfig
    from hookcli.products.product import Outlook, RunEnd, RunningChunk, Scope
    from hookcli.records.images import Box, Score
    from hookcli.render.draw.grid_writer import GridWriter

_AFTER_POOLING = "one value per channel, as after pooling: an earlier layer has maps"
_MOST_JUDGED = 8  # images whose Grad-CAMs are tested
_HEAT_BYTES = 3.0  # per pixel of the network's input, measured


def is_judged(scope: Scope) -> bool:
    return bool((style := scope.config.backward) and style.judge) and scope.images <= _MOST_JUDGED


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
        files, size = self._backward.saliency + outlook.cams, 0.0
        if self.scope.config.heat is not None:
            files = sum(layer.module_type != "Linear" for layer in outlook.layers)
            files *= len(self.scope.config.sides)
            size = files * _HEAT_BYTES * math.prod(outlook.loaded.prepare.nominal_shape[-2:])
        pictures = self.scope.passes * self.scope.formats
        tests = self.scope.passes * outlook.cams * CAM_PASSES * is_judged(self.scope)
        return Cost(files * pictures, size * pictures, tests)

    def collect(self, result: BatchResult, running: RunningChunk, writer: GridWriter) -> None:
        for heat in result.heats:
            if heat.kind == "cam" and heat.call and heat.layout and not heat.layout.is_spatial:
                name = heat.layout.name
                reason = explain_layout(name) if name in ("NLC", "unknown") else _AFTER_POOLING
                running.chunk.heatless[heat.call.layer.label] = reason
                continue
            method = CAM_METHODS[self._backward.cam_method]
            part = running.find_part(heat.image) if heat.score and heat.score.box else None
            picture = _write_heat(heat, running.show(heat.image), method, writer, part)
            running.chunk.heats.append(picture)
            self.note_pictures(running.chunk, [picture.file])

    def describe(self, end: RunEnd) -> dict[str, object]:
        return {"heats": end.totals.heats, "heatless": explain_heatless(end, self.scope.config)}


def explain_heatless(end: RunEnd, config: RunConfig) -> dict[str, str]:
    """Return why a layer of ``--cam``, or a call with ``--heat``, has no map over the images."""
    drawn = {heat.call_id for heat in end.totals.heats}
    rows = () if config.heat is None else end.rows
    flat = {row.call_id: explain_layout(row.layout) for row in rows if row.call_id not in drawn}
    return {**end.totals.heatless, **flat}


def _write_heat(
    heat: Heat, seen: bytes, method: str, writer: GridWriter, part: Box | None
) -> HeatPicture:
    score, of = heat.score, "" if heat.score is None else heat.score.name
    values, source, facts = heat.values.numpy(), writer.title_of(heat.image), {}
    call_id = "" if heat.call is None else heat.call.id
    if heat.call is None:
        file = names.saliency_file(heat.image, heat.target)
        canvas = draw_saliency(seen, values, [f"Saliency   {source}", of])
    elif heat.kind != "cam" and heat.layout and heat.layout.channel_axis is not None:
        file = names.picture_file(names.HEAT, heat.image, names.grid_name(heat.call))
        form = f"{shape_text(heat.shape)}   {heat.layout.text}"
        title = f"{call_id}   {form}   {source}{frame_note(heat.layout, heat.shape)}"
        of = f"the {heat.kind} of the {heat.shape[heat.layout.channel_axis]} channels"
        canvas = draw_places(seen, values, title, of)
    else:
        file = names.picture_file(names.CAM, heat.image, names.grid_name(heat.call))
        box = _find_shares(score.box, part) if score and score.box and part else None
        canvas = draw_heat(seen, values, [f"{method} of {call_id}   {source}", of], box)
        facts = {**_sum_up(heat.values, score), "method": method, "test": heat.test, "box": box}
    writer.write_over_photo(file, canvas)
    return HeatPicture(heat.image, heat.kind, call_id, file, score=score, **facts)


def _find_shares(box: Box, part: Box) -> Box:
    """Return a box of the image as shares of its ``part`` that the network sees."""
    starts, ends = part[:2] * 2, part[2:] * 2
    return tuple(
        round((side - start) / (end - start), 4)
        for side, start, end in zip(box, starts, ends, strict=True)
    )


def place_in_part(box: Box, size: Sequence[int], part: Box | None) -> Box | None:
    """Return a box of a network's input (height and width ``size``) in pixels of the image."""
    if part is None:
        return None
    left, top, right, bottom = part
    across, down = (right - left) / size[1], (bottom - top) / size[0]
    return left + box[0] * across, top + box[1] * down, left + box[2] * across, top + box[3] * down


def _sum_up(cam: Tensor, score: Score | None) -> dict[str, Any]:
    """Return what a Grad-CAM says, as fields of ``HeatPicture``."""
    if blank := find_trouble(cam.numpy()):
        is_value = score is not None and (score.target is None or score.kind == "value")
        is_likeness = score is not None and score.kind.startswith("similarity")
        why = "; the score is not that of a class" * (is_value and not is_likeness)
        return {"blank": f"{blank}{why}"}
    height, width = cam.shape
    row, column = divmod(int(cam.argmax()), width)
    sums = cam.clamp(0).flatten().sort(descending=True).values.double().cumsum(0)
    half = (int((sums < sums[-1] / 2).sum()) + 1) / cam.numel()
    return {"peak": ((column + 0.5) / width, (row + 0.5) / height), "half": half}
