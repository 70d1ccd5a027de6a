"""Draw the channels of calls: one picture (grid) per call, or one (sheet) per image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.products.product import Cost, Product
from hookcli.store.locations import names

if TYPE_CHECKING:
    from hookcli.activations.collector import BatchResult
    from hookcli.activations.feature_maps import Picture
    from hookcli.products.product import Job, Outlook, RunEnd, RunningChunk
    from hookcli.render.draw.grid_writer import GridWriter

_MOST_IN_A_STRIP = 12
_SECOND_FORMAT = 3.5  # bytes of an SVG, which has no palette, per byte of the PNG
_PIXEL_BYTES = 0.55  # per pixel of a tile: palette PNGs of real feature maps, measured
_TILE_BYTES = 2_200  # per tile: its map for the viewer, its part of headings, and its figures


class Grids(Product):
    def claim(self) -> list[str]:
        return [names.SHEETS] if self.scope.style.mode == "sheet" else [names.GRIDS, names.MAPS]

    def estimate(self, outlook: Outlook) -> Cost:
        scope, is_sheet = self.scope, self.scope.style.mode == "sheet"
        tiles = [
            self._count_tiles(width, is_flat=layer.module_type == "Linear")
            for layer, width in zip(outlook.layers, outlook.channels, strict=True)
        ]
        # in a run with gradients, only the gradients of outputs are drawn
        sides = len(scope.config.sides) if scope.config.backward is None else 1
        grids, maps = min(sum(tiles), 1), 0
        if not is_sheet:
            grids = sides * sum(map(bool, tiles))
            layers = zip(outlook.layers, tiles, strict=True)
            maps = sides * sum(layer.module_type != "Linear" for layer, count in layers if count)
        weight = 1 + _SECOND_FORMAT * (scope.formats - 1)
        of_tile = scope.style.tile**2 * _PIXEL_BYTES * weight + _TILE_BYTES
        files = grids * scope.formats + maps
        return Cost(files * scope.passes, sides * sum(tiles) * of_tile * scope.passes)

    def _count_tiles(self, width: int, *, is_flat: bool) -> int:
        style = self.scope.style
        shown = min(style.top or width, width)
        if style.channels is not None:
            shown = sum(channel < width for channel in style.channels)
        return min(max(shown, is_flat), _MOST_IN_A_STRIP if style.mode == "sheet" else width)

    def collect(self, result: BatchResult, running: RunningChunk, writer: GridWriter) -> None:
        pictures = result.pictures
        if self.scope.style.mode == "sheet":
            by_image: dict[str, list[Picture]] = {}
            for picture in pictures:
                by_image.setdefault(picture.image, []).append(picture)
            targets = [*dict.fromkeys(picture.call.target for picture in pictures)]
            for rows in by_image.values():
                rows.sort(key=lambda each: (targets.index(each.call.target), each.call.order))
            files = [writer.write_sheet(image, rows) for image, rows in by_image.items()]
        else:
            files = [writer.write_grid(picture) for picture in pictures]
        self.note_pictures(running.chunk, files)
        running.chunk.written_files += [
            names.picture_file(names.MAPS, picture.image, names.grid_name(picture.call))
            for picture in pictures
            if picture.has_maps
        ]

    def end_chunk(self, running: RunningChunk, writer: GridWriter) -> Job:
        take, grids = writer.take(), running.chunk.grids
        return lambda: grids.extend(take())

    def describe(self, end: RunEnd) -> dict[str, object]:
        return {"grids": end.totals.grids}
