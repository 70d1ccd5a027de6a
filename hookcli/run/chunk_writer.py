"""Parts of a run put on disk while the model goes on, added up in their order, and taken over by ``--resume``."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from hookcli.config import part_size
from hookcli.images.prepare import file_state
from hookcli.render.draw.grid_writer import GridWriter
from hookcli.store.chunks import read_part, read_top, remove_parts, write_part, write_top
from hookcli.store.tensors import write_shard
from hookcli.summary.top_images import TopImages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.plan.prepare import PreparedRun
    from hookcli.records.pictures import Grid
    from hookcli.run.chunk_runner import ChunkRecords
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk, RunTotals

_WAITING = 2  # parts that may be on their way to the disk


class ProgressListener:
    """Is told how a run goes; does nothing itself."""

    def resumed(self, done: int) -> None:
        """``done`` images stand from the run that was interrupted."""

    def part_done(self, done: int, skipped: int) -> None:
        """``done`` images have gone through or been skipped so far."""

    def warn(self, text: str) -> None:
        """Something that the user must know."""


class ChunkWriter:
    """Puts parts on disk while the model goes on, and adds them up in their order."""

    def __init__(
        self, prepared: PreparedRun, folder: RunFolder, found: RunTotals, watcher: ProgressListener
    ) -> None:
        self.done = 0
        self.grids = GridWriter(folder.write, prepared.style)
        self.watcher = watcher
        self._prepared, self._folder, self._found = prepared, folder, found
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[Future[Chunk]] = []
        several = len(prepared.sources) > 1
        found.top = TopImages(prepared.config.top_images * several)
        self._places = {source.key: place for place, source in enumerate(prepared.sources)}

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
        """Take over the parts that an interrupted run left, up to the first that is missing or out of date."""
        resume = self._prepared.config.resume
        top = read_top(self._folder, len(self._prepared.sources)) if resume else None
        if top is not None and top.count == self._found.top.count:
            parts: list[Chunk] = []
            while (
                len(parts) < top.parts
                and (part := _usable(self._prepared, self._folder, len(parts))) is not None
            ):
                parts.append(part)
            if len(parts) == top.parts:
                self.done, self._found.top = top.parts, top
                for part in parts:
                    self._found.merge(part)
            else:  # what it knows of the parts that are to be done again cannot be taken out
                self.watcher.warn(
                    "images have changed since the run was interrupted: it begins again"
                )
            self.watcher.resumed(len(self._found.images) + len(self._found.skipped))
        remove_parts(self._folder, self.done)

    def put(self, part: Chunk, contents: ChunkRecords) -> None:
        """Have a part written; waits while too many are on their way."""
        self._waiting.append(self._thread.submit(self._write, part, contents, self.grids.take()))
        while len(self._waiting) > _WAITING:
            self._merge(self._waiting.pop(0).result())

    def finish(self) -> None:
        """Wait until all is on disk."""
        while self._waiting:
            self._merge(self._waiting.pop(0).result())

    def _merge(self, part: Chunk) -> None:
        self.done += 1
        self._found.merge(part)
        found = self._found
        self.watcher.part_done(len(found.images) + len(found.skipped), len(found.skipped))

    def _write(
        self, part: Chunk, contents: ChunkRecords, grids: Callable[[], tuple[Grid, ...]]
    ) -> Chunk:
        from hookcli.store.parquet import write_records  # 0.2 s, while the grids are being written

        part.grids = list(grids())
        part.written_files.append(write_records(self._folder.write, part.number, contents.records))
        if contents.kept:
            part.written_files.append(write_shard(self._folder.write, part.number, contents.kept))
        self._found.top.add(contents.records, self._places)
        if self._prepared.is_long:
            write_part(self._folder, part)
            write_top(self._folder, self._found.top)
        return part


def _usable(prepared: PreparedRun, folder: RunFolder, number: int) -> Chunk | None:
    """The part as it was put away, if its files are all there and its images have not changed."""
    part = read_part(folder, number)
    size = part_size(prepared.config.batch_size)
    planned = prepared.sources[number * size : (number + 1) * size]
    if part is None or not planned or len(part.files) != len(planned) or part.way != prepared.way:
        return None
    if not all(folder.holds(file) for file in part.written_files):
        return None
    verify = prepared.config.verify
    for known, image in zip(part.files, planned, strict=True):
        now = file_state(image.file, verify=verify)
        same = (now.file, now.size, now.mtime_ns) == (known.file, known.size, known.mtime_ns)
        if not same or (verify and now.sha256 != known.sha256):
            return None
    return part
