"""Write the charts ``overview.png`` and ``gradient_flow.png`` at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.config import BackwardStyle
from hookcli.outside.escape import for_page
from hookcli.products.product import Cost, Product
from hookcli.records.text import and_more
from hookcli.store.locations import names

if TYPE_CHECKING:
    from hookcli.config import PictureFormat
    from hookcli.products.product import Outlook, RunEnd
    from hookcli.records.report import ReportDocument
    from hookcli.store.folder import RunFolder


class _Chart(Product):
    file: str  # the name of the PNG

    def claim(self) -> list[str]:
        return names.list_formats(self.file, self.scope.style.format)

    def estimate(self, _outlook: Outlook) -> Cost:
        return Cost(self.scope.formats)

    def illustrate(self, document: ReportDocument, end: RunEnd) -> list[str]:
        forms: dict[PictureFormat, None] = dict.fromkeys(("png", self.scope.style.format))
        return [
            end.folder.write(name, self.draw(document, end.folder, form))
            for name, form in zip(self.claim(), forms, strict=True)
        ]

    def draw(self, document: ReportDocument, folder: RunFolder, form: PictureFormat) -> bytes:
        raise NotImplementedError


class Overview(_Chart):
    file = names.OVERVIEW

    def draw(self, document: ReportDocument, folder: RunFolder, form: PictureFormat) -> bytes:
        from hookcli.render.draw.overview_png import draw_overview

        return draw_overview(document, lambda name: folder.read(name) or b"", form)


class GradientFlow(_Chart):
    file = names.GRADIENT_FLOW

    def draw(self, document: ReportDocument, _folder: RunFolder, form: PictureFormat) -> bytes:
        from hookcli.render.draw.overview_png import draw_flow

        info, images = document.model, document.images
        backward = self.scope.config.backward or BackwardStyle()
        of = for_page(images[0].key) + and_more(len(images) - 1)
        heading = [
            f"{for_page(info.name)}   gradient flow   {of}",
            f"{backward.score} of {backward.aims[0]}; weights: {info.weights}",
        ]
        return draw_flow(document.layers, heading, form)
