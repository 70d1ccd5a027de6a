"""Maps drawn over the network's input: Grad-CAM, saliency and attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.config import BackwardStyle
from hookcli.products.product import Cost, Product
from hookcli.records.pictures import HeatPicture
from hookcli.render.draw.heatmap import draw_heat, draw_saliency
from hookcli.store.places import names

if TYPE_CHECKING:
    from hookcli.activations.collector import Heat
    from hookcli.products.product import Forward, Outlook, RunEnd, Scope
    from hookcli.records.images import Score
    from hookcli.render.draw.grid_writer import GridWriter


class Heats(Product):
    """The Grad-CAM and saliency maps of a backward pass, and the list of all maps for the page.

    The list also has the attention maps, which the product ``Attention`` draws.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._backward = scope.config.backward or BackwardStyle()  # a style that asks for no map

    def claim(self) -> list[str]:
        asked = {names.CAM: self._backward.cams, names.SALIENCY: self._backward.saliency}
        return [folder for folder, is_asked in asked.items() if is_asked]

    def estimate(self, _outlook: Outlook) -> Cost:
        heats = self._backward.saliency + len(self._backward.cams)
        return Cost(self.scope.images * heats * self.scope.formats)

    def collect(self, forward: Forward, writer: GridWriter) -> None:
        result = forward.result
        for heat in result.heats:
            picture = _write_heat(heat, forward.show(heat.image), result.score, writer)
            forward.chunk.heats.append(picture)
            self.note_pictures(forward.chunk, [picture.file])

    def describe(self, end: RunEnd) -> dict[str, object]:
        return {"heats": end.totals.heats}


def _write_heat(heat: Heat, seen: bytes, score: Score | None, writer: GridWriter) -> HeatPicture:
    of = ""
    if score is not None:
        of = score.kind + (f" of {score.category} ({score.target})" if score.category else "")
    values, source = heat.values.numpy(), writer.title_of(heat.image)
    if heat.call is None:
        file = names.saliency_file(heat.image)
        writer.write_over_photo(file, draw_saliency(seen, values, [f"Saliency   {source}", of]))
        return HeatPicture(heat.image, heat.kind, "", file)
    file = names.picture_file(names.CAM, heat.image, names.grid_name(heat.call))
    title = f"Grad-CAM of {heat.call.id}   {source}"
    writer.write_over_photo(file, draw_heat(seen, values, [title, of]))
    return HeatPicture(heat.image, heat.kind, heat.call.id, file)
