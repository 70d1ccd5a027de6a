"""The thumbnails of images, with one picture for each chunk's images."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hookcli.products.product import Cost, Product
from hookcli.records.pictures import Thumbnails
from hookcli.records.runs import MOST_THUMBNAILS
from hookcli.render.draw.thumbnails import COLUMNS, draw_thumbnails, shrink
from hookcli.store.places import names

if TYPE_CHECKING:
    from hookcli.activations.collector import BatchResult
    from hookcli.products.product import Job, Outlook, RunEnd, RunningChunk, Scope
    from hookcli.render.draw.grid_writer import GridWriter
    from hookcli.summary.chunks import Chunk

_THUMBNAIL_BYTES = 3_000


class ThumbnailProduct(Product):
    """Thumbnails of at least the first ``MOST_THUMBNAILS`` images, in one picture per chunk."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._small: dict[str, bytes] = {}

    def claim(self) -> list[str]:
        return [names.THUMBNAILS]

    def estimate(self, _outlook: Outlook) -> Cost:
        images, size = self.scope.images, self.scope.chunk_size
        files = min(-(-images // size), -(-MOST_THUMBNAILS // size))
        return Cost(files, min(images, files * size) * _THUMBNAIL_BYTES)

    def collect(self, result: BatchResult, running: RunningChunk, _writer: GridWriter) -> None:
        if running.chunk.number * self.scope.chunk_size < MOST_THUMBNAILS:
            for key in result.keys:
                if key in running.images:
                    self._small[key] = shrink(running.show(key))

    def end_chunk(self, running: RunningChunk, writer: GridWriter) -> Job | None:
        small, self._small = self._small, {}
        return partial(_write_thumbnails, running.chunk, small, writer) if small else None

    def describe(self, end: RunEnd) -> dict[str, object]:
        return {"thumbnails": end.totals.thumbnails}


def _write_thumbnails(chunk: Chunk, small: dict[str, bytes], writer: GridWriter) -> None:
    keys = tuple(image.key for image in chunk.images)
    data = draw_thumbnails([small[key] for key in keys])
    file = writer.write(names.thumbnails_file(chunk.number), data)
    chunk.thumbnails.append(Thumbnails(file, COLUMNS, keys))
    chunk.written_files.append(file)
