"""Write thumbnails of images, and pictures of the network's input for all or some images."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hookcli.products.product import Cost, Product
from hookcli.products.top_images import choose_best
from hookcli.records.pictures import Thumbnails
from hookcli.records.runs import MOST_FIRING, MOST_IMAGES, MOST_THUMBNAILS, choose_pictured
from hookcli.render.draw.thumbnails import COLUMNS, draw_thumbnails, shrink
from hookcli.store.locations import names

if TYPE_CHECKING:
    from hookcli.activations.collector import BatchResult
    from hookcli.images.read import ImageSource
    from hookcli.products.product import Job, Outlook, RunEnd, RunningChunk, Scope
    from hookcli.render.draw.grid_writer import GridWriter
    from hookcli.summary.chunks import Chunk

_BYTES_PER_PIXEL = 0.28  # of a JPEG in the quality that hookcli writes
_THREADS = min(4, os.cpu_count() or 1)
_THUMBNAIL_BYTES = 3_000


class InputPictures(Product):
    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.shows_all = scope.images <= MOST_IMAGES

    def claim(self) -> list[str]:
        return [names.SEEN]

    def estimate(self, outlook: Outlook) -> Cost:
        config, shown = self.scope.config, self.scope.images
        if not self.shows_all:
            top = config.top_images if "output" in config.sides else 0
            shown = min(len(outlook.layers) * top, MOST_FIRING)
        pixels = math.prod(outlook.loaded.prepare.nominal_shape[-2:])
        return Cost(shown, shown * _BYTES_PER_PIXEL * pixels)

    def collect(self, result: BatchResult, running: RunningChunk, writer: GridWriter) -> None:
        for key in result.keys if self.shows_all else ():
            if key in running.images:
                file = writer.write(names.seen_file(key), running.show(key))
                running.images[key] = replace(running.images[key], seen=file)
                running.chunk.written_files.append(file)

    def close(self, end: RunEnd) -> list[str]:
        if self.shows_all:
            return []
        from hookcli.images.prepare import prepare_image

        wanted, images = _name_shown(end, self.scope), end.totals.images
        indices = {image.key: index for index, image in enumerate(images) if image.key in wanted}
        sources = [source for source in end.sources if source.key in indices]
        end.folder.claim([names.seen_file(source.key) for source in sources])

        def show(source: ImageSource) -> str | None:
            ready, index = prepare_image(end.fitter, source), indices[source.key]
            if ready.pixels is None or ready.state.sha256 != images[index].sha256:
                return None  # the image file has changed
            name = end.folder.write(names.seen_file(source.key), end.loaded.show(ready.pixels))
            images[index] = replace(images[index], seen=name)
            return name

        with ThreadPoolExecutor(_THREADS) as threads:
            return [*filter(None, threads.map(show, sources))]


def _name_shown(end: RunEnd, scope: Scope) -> set[str]:
    """Return the keys of images that findings name, and of some with a channel's largest value."""
    keys = [source.key for source in end.sources]
    best = choose_best(keys, end.top, end.totals.calls, scope.config.grids.channels)
    firing = (key for tops in best.values() for top in tops[:1] for key in top.images)
    pictured = choose_pictured(end.totals.images, end.findings)
    return {image.key for image in pictured} | set([*dict.fromkeys(firing)][:MOST_FIRING])


class ThumbnailProduct(Product):
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
