"""A run on one machine: images and a model in, a run folder and a RunResult out.

The run goes part by part. While the model works on one, the images of the next are made ready by
worker processes, and the pictures and tables of the one before are written by threads.
"""

from __future__ import annotations

import itertools
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.clock import Clock
from hookcli.closing import close, describe_request, write_tables
from hookcli.focusing import describe_focus, find_focus
from hookcli.forward import BrokenForwardError, HookedForward
from hookcli.parts import Found, Part
from hookcli.planning import part_size, prepare_run
from hookcli.preparing import file_state, prepare_images
from hookcli.running import PartRunner
from hookcli.sinks.grids import GridWriter
from hookcli.sinks.parquet import write_records
from hookcli.sinks.part_files import read_part, remove_parts, write_part
from hookcli.sinks.run_folder import RunFolder
from hookcli.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from hookcli.config import InspectConfig
    from hookcli.planning import PreparedRun
    from hookcli.preparing import PreparedImage
    from hookcli.records import LayerRecord
    from hookcli.results import Grid, RunResult

_WAITING = 2  # parts that may be on their way to the disk


class Watcher:
    """Is told how a run goes; does nothing itself."""

    def resumed(self, done: int) -> None:
        """``done`` images stand from the run that was interrupted."""

    def part_done(self, done: int, skipped: int) -> None:
        """``done`` images have gone through or been skipped so far."""

    def warn(self, text: str) -> None:
        """Something that the user must know."""


def inspect_images(config: InspectConfig) -> RunResult:
    """Run the images through the model, write the run folder, and return what was found.

    Raises:
        HookcliError: see ``hookcli.errors`` for what each means.
    """
    return run(prepare_run(config))


def run(prepared: PreparedRun, watcher: Watcher | None = None) -> RunResult:
    """Do what was prepared.

    Raises:
        ForwardError: the model raised; what was observed until then is in the folder, without a
            manifest.
        OutputError: the folder is protected or in use, or a file could not be written.
        NoImageError: no image could be used.
        KeyboardInterrupt: the run was interrupted; what is complete is in the folder.
    """
    config = prepared.config
    watcher = watcher or Watcher()
    clock = Clock(prepared.seconds)
    folder = RunFolder(
        prepared.plan.out_dir,
        describe_request(prepared),
        replace_run=config.out is None,
        replace_any=config.overwrite,
        resume=config.resume,
    )
    focus = find_focus(prepared)
    forward = _hook(prepared, focus)
    found = Found(Tally(prepared.limits))
    with folder, _Writing(prepared, folder, found, watcher) as writing:
        writing.start_again()
        forward.one_at_a_time, forward.find_writes = found.alone, not writing.done
        runner = PartRunner(prepared, forward, folder.write_bytes, writing.grids)
        try:
            with _stop_between_batches(runner) if prepared.is_long else _nothing():
                for number, images in _read_parts(prepared, writing, folder.lock_number):
                    writing.put(*runner.run(number, images))
                    clock.lap("forward")
                import hookcli.sinks.report  # noqa: F401  0.07 s, while the grids are being written

                writing.finish()
        except BrokenForwardError:
            writing.finish()
            found.merge(runner.part)
            write_tables(folder, prepared, found)
            raise
        clock.lap("write grids")
        described = None if focus is None else describe_focus(config, focus)
        result = close(folder, prepared, found, described)
        remove_parts(folder.folder)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


def _hook(prepared: PreparedRun, focus: Tensor | None) -> HookedForward:
    loaded = prepared.loaded
    return HookedForward(
        loaded.module,
        prepared.layers,
        prepared.config.at,
        prepared.style,
        focus=None if focus is None else focus.to(loaded.info.device),
        sample=True,
        feed=loaded.feed,
    )


def _read_parts(
    prepared: PreparedRun, writing: _Writing, lock: int | None
) -> Iterator[tuple[int, list[PreparedImage]]]:
    """The images of each part that is still to be done, ready for the model, with the part's number."""
    size = part_size(prepared.config.batch_size)
    images = prepare_images(
        prepared.fitter,
        prepared.sources[writing.done * size :],
        prepared.workers,
        writing.watcher.warn,
        lock,
    )
    for number in itertools.count(writing.done):
        part = list(itertools.islice(images, size))
        if not part:
            return
        yield number, part


class _Writing:
    """Puts parts on disk while the model goes on, and adds them up in their order."""

    def __init__(
        self, prepared: PreparedRun, folder: RunFolder, found: Found, watcher: Watcher
    ) -> None:
        self.done = 0
        self.grids = GridWriter(folder.folder, prepared.style)
        self.watcher = watcher
        self._prepared, self._folder, self._found = prepared, folder.folder, found
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[Future[Part]] = []

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is not None and issubclass(kind, KeyboardInterrupt):
                self.finish()
        finally:
            self._thread.shutdown(cancel_futures=True)
            self.grids.close()

    def start_again(self) -> None:
        """Take over the parts that an interrupted run left, up to the first that is missing or out of date."""
        if self._prepared.config.resume:
            while (part := _usable(self._prepared, self._folder, self.done)) is not None:
                self.done += 1
                self._found.merge(part)
            self.watcher.resumed(len(self._found.images) + len(self._found.skipped))
        remove_parts(self._folder, self.done)

    def put(self, part: Part, records: Sequence[LayerRecord]) -> None:
        """Have a part written; waits while too many are on their way."""
        self._waiting.append(self._thread.submit(self._write, part, records, self.grids.take()))
        while len(self._waiting) > _WAITING:
            self._merge(self._waiting.pop(0).result())

    def finish(self) -> None:
        """Wait until all is on disk."""
        while self._waiting:
            self._merge(self._waiting.pop(0).result())

    def _merge(self, part: Part) -> None:
        self.done += 1
        self._found.merge(part)
        found = self._found
        self.watcher.part_done(len(found.images) + len(found.skipped), len(found.skipped))

    def _write(
        self, part: Part, records: Sequence[LayerRecord], grids: Callable[[], tuple[Grid, ...]]
    ) -> Part:
        part.grids = list(grids())
        part.written_files.append(write_records(self._folder, part.number, records))
        if self._prepared.is_long:
            write_part(self._folder, part)
        return part


def _usable(prepared: PreparedRun, folder: Path, number: int) -> Part | None:
    """The part as it was put away, if its files are all there and its images have not changed."""
    part = read_part(folder, number)
    size = part_size(prepared.config.batch_size)
    planned = prepared.sources[number * size : (number + 1) * size]
    if part is None or not planned or len(part.files) != len(planned):
        return None
    if not all((folder / file).is_file() for file in part.written_files):
        return None
    verify = prepared.config.verify
    for known, image in zip(part.files, planned, strict=True):
        now = file_state(image.file, verify=verify)
        same = (now.file, now.size, now.mtime_ns) == (known.file, known.size, known.mtime_ns)
        if not same or (verify and now.sha256 != known.sha256):
            return None
    return part


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _stop_between_batches(runner: PartRunner) -> Iterator[None]:
    """The first Ctrl-C lets the running batch end; the second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        if runner.stopped:
            raise KeyboardInterrupt
        runner.stopped = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
