"""Chunks of a run: written while the model goes on, and added up in their order."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from hookcli.render.draw.grid_writer import GridWriter
from hookcli.run.resume import read_usable_chunks
from hookcli.store.chunks import read_top, remove_chunks, write_chunk, write_top
from hookcli.store.tensors import write_shard
from hookcli.summary.top_images import TopImages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.plan.prepare import PreparedRun
    from hookcli.records.pictures import Grid
    from hookcli.run.chunk_runner import ChunkRecords
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk, RunTotals

_MOST_WAITING = 2  # at most this many chunks wait to be written


class ProgressListener:
    """Receives the progress of a run; this one ignores it."""

    def resumed(self, done: int) -> None:
        """The run continues an interrupted one after its first ``done`` images."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """So far ``done`` images have gone through or been skipped, ``skipped`` of them skipped."""

    def warn(self, text: str) -> None:
        """There is a warning for the user."""


class ChunkWriter:
    """Writes chunks while the model works on the next one, and adds them up in their order.

    Attributes:
        done: how many chunks have been added to the totals; all of them are on disk.
        grids: draws the pictures of the chunk that is running.
        listener: receives the progress of the run.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        folder: RunFolder,
        totals: RunTotals,
        listener: ProgressListener,
    ) -> None:
        self.done = 0
        self.grids = GridWriter(folder.write, prepared.settings.style)
        self.listener = listener
        self._prepared, self._folder, self._totals = prepared, folder, totals
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[Future[Chunk]] = []
        self._written = 0  # chunks on disk; changed by the writing thread alone after ``resume``
        several = prepared.settings.has_several
        totals.top = TopImages(prepared.settings.config.top_images * several)
        self._places = {source.key: place for place, source in enumerate(prepared.model.sources)}

    def __enter__(self) -> ChunkWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self.finish()
        finally:
            self._thread.shutdown(cancel_futures=True)
            self.grids.close()

    def resume(self) -> None:
        """Add up the chunks of an interrupted run if all of them can still be used.

        Otherwise the run begins again. The files of chunks that are not used are deleted.
        """
        resume = self._prepared.settings.config.folder.resume
        top = read_top(self._folder, len(self._prepared.model.sources)) if resume else None
        if top is not None and top.count == self._totals.top.count:
            chunks = read_usable_chunks(self._prepared, self._folder, top.chunks)
            if len(chunks) == top.chunks:
                self.done, self._totals.top = top.chunks, top
                self._written = top.chunks
                for chunk in chunks:
                    self._totals.merge(chunk)
            else:  # the top images cannot be reduced to those of the chunks that can be used
                self.listener.warn("some saved results can no longer be used: the run begins again")
            self.listener.resumed(len(self._totals.images) + len(self._totals.skipped))
        remove_chunks(self._folder, self.done)

    def put(self, chunk: Chunk, records: ChunkRecords) -> None:
        """Queue a chunk to be written; wait while too many chunks are in the queue."""
        self._waiting.append(self._thread.submit(self._write, chunk, records, self.grids.take()))
        while len(self._waiting) > _MOST_WAITING:
            self._merge_next()

    def finish(self) -> None:
        """Wait until every chunk is on disk."""
        while self._waiting:
            self._merge_next()

    def _merge_next(self) -> None:
        """Wait for the first chunk in the queue; it stays there if the wait is interrupted."""
        chunk = self._waiting[0].result()
        del self._waiting[0]
        self.done += 1
        totals = self._totals
        totals.merge(chunk)
        self.listener.chunk_done(len(totals.images) + len(totals.skipped), len(totals.skipped))

    def _write(
        self, chunk: Chunk, records: ChunkRecords, grids: Callable[[], tuple[Grid, ...]]
    ) -> Chunk:
        from hookcli.store.parquet import write_records  # takes 0.2 s

        if chunk.number != self._written:
            raise CancelledError  # a chunk before it failed: ``--resume`` uses none after a gap
        write = self._folder.write
        chunk.grids = list(grids())
        chunk.written_files.append(write_records(write, chunk.number, records.records))
        if records.kept:
            chunk.written_files.append(write_shard(write, chunk.number, records.kept))
        self._totals.top.add(records.records, self._places)
        if self._prepared.settings.is_long:
            write_chunk(self._folder, chunk)
            write_top(self._folder, self._totals.top)
        self._written += 1
        return chunk
