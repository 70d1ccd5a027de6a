"""Write finished chunks of images in a thread, while the model works on the next chunk."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from hookcli.render.draw.grid_writer import GridWriter
from hookcli.run.resume import resume_chunks
from hookcli.store.chunks import write_chunk, write_top

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageSource
    from hookcli.plan.prepared import RunSettings
    from hookcli.products.product import RunningChunk
    from hookcli.run.listener import ProgressListener
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk

_MOST_WAITING = 2  # this many chunks may wait in the queue


class ChunkWriter:
    """Writes chunks (groups of images) in order, in a thread, and adds them to the totals."""

    def __init__(
        self,
        settings: RunSettings,
        sources: Sequence[ImageSource],
        folder: RunFolder,
        totals: Chunk,
        listener: ProgressListener,
    ) -> None:
        # the images with the largest values of each channel in the first ``done`` chunks
        self.top = resume_chunks(settings, sources, folder, totals=totals, listener=listener)
        self.done = self._written = self.top.chunks  # only the writing thread changes _written
        self.grids = GridWriter(folder.write, settings.style, settings.config.run.model.name)
        self.listener = listener
        self._settings, self._folder, self._totals = settings, folder, totals
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[Future[Chunk]] = []
        self._indices = {source.key: index for index, source in enumerate(sources)}

    def __enter__(self) -> ChunkWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self.finish()
        finally:
            self._thread.shutdown(cancel_futures=True)
            self.grids.close()

    def put(self, ended: RunningChunk) -> None:
        self._waiting.append(self._thread.submit(self._write, ended))
        while len(self._waiting) > _MOST_WAITING:
            self._merge_next()

    def finish(self) -> None:
        while self._waiting:
            self._merge_next()

    def _merge_next(self) -> None:
        """Wait for the oldest chunk, and add it to the totals. Ctrl-C leaves it in the queue."""
        chunk = self._waiting[0].result()
        del self._waiting[0]
        self.done += 1
        totals = self._totals
        totals.merge(chunk)
        self.listener.chunk_done(len(totals.images) + len(totals.skipped), len(totals.skipped))

    def _write(self, ended: RunningChunk) -> Chunk:
        chunk = ended.chunk
        if chunk.number != self._written:
            raise CancelledError  # an earlier chunk failed: ``--resume`` uses no chunk after a gap
        for job in ended.jobs:
            job()
        self.top.add(ended.list_records(), self._indices)
        if self._settings.is_long:
            write_chunk(self._folder, chunk)
            write_top(self._folder, self.top)
        self._written += 1
        return chunk
