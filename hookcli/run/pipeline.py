"""A run on one machine: images and a model in, a run folder and a RunResult out.

The run goes part by part. While the model works on one, the images of the next are made ready by
worker processes, and the pictures and tables of the one before are written by threads.
"""

from __future__ import annotations

import itertools
import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from hookcli.config import part_size
from hookcli.errors import OutputError
from hookcli.images.prepare import prepare_images, release_pictures
from hookcli.passes.backward import HookedBackward
from hookcli.passes.forward import BrokenForwardError, HookedForward
from hookcli.plan.clock import Clock
from hookcli.plan.focus import describe_focus, find_focus
from hookcli.plan.prepare import prepare_run
from hookcli.run.chunk_runner import ChunkRunner
from hookcli.run.chunk_writer import ChunkWriter, ProgressListener
from hookcli.run.close import close, describe_request, write_tables
from hookcli.store.folder import RunFolder
from hookcli.store.tensors import write_weights
from hookcli.summary.chunks import RunTotals
from hookcli.summary.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hookcli.config import InspectConfig
    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepare import PreparedRun
    from hookcli.records.runs import RunResult


def inspect_images(config: InspectConfig) -> RunResult:
    """Run the images through the model, write the run folder, and return what was found.

    Raises:
        HookcliError: see ``hookcli.errors`` for what each means.
    """
    return run(prepare_run(config))


def run(prepared: PreparedRun, watcher: ProgressListener | None = None) -> RunResult:
    """Do what was prepared.

    Raises:
        ForwardError: the model raised; what was observed until then is in the folder, without a
            manifest.
        OutputError: the folder is protected or in use, or a file could not be written.
        NoImageError: no image could be used.
        KeyboardInterrupt: the run was interrupted; what is complete is in the folder.
    """
    config = prepared.config
    watcher, clock = watcher or ProgressListener(), Clock(prepared.seconds)
    folder = RunFolder(
        prepared.plan.out_dir,
        describe_request(prepared),
        prepared.planned_names,
        replace_run=config.out is None,
        replace_any=config.overwrite,
        resume=config.resume,
    )
    prepared.sources = release_pictures(prepared.fitter, prepared.sources)
    focus = find_focus(prepared)
    forward = _hook(prepared, focus)
    found = RunTotals(Tally(prepared.limits))
    with (
        folder,
        prepared.edits.restored_on_exit(),
        ChunkWriter(prepared, folder, found, watcher) as writing,
    ):
        writing.resume()
        is_resumed = bool(found.images)
        found.focus = None if focus is None else describe_focus(config, focus)
        forward.one_at_a_time = found.alone
        outlets = folder.write, writing.grids, watcher.warn
        runner = ChunkRunner(prepared, forward, *outlets, found.images[0] if is_resumed else None)
        try:
            with _stop_between_batches(runner) if prepared.is_long else _nothing():
                for number, images in _read_parts(prepared, writing, folder.lock_number, runner):
                    writing.put(*runner.run(number, images))
                    clock.lap("forward")
                import hookcli.render.report.page  # noqa: F401  0.07 s, while the grids are being written

                writing.finish()
        except BrokenForwardError:
            with suppress(OutputError):  # that the model failed is what must be known
                writing.finish()
                found.merge(runner.part)
                write_tables(folder, prepared, found)
            raise
        clock.lap("write grids")
        result = _finish(folder, prepared, found, is_resumed=is_resumed)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


def _finish(
    folder: RunFolder, prepared: PreparedRun, found: RunTotals, *, is_resumed: bool
) -> RunResult:
    """Write what comes at the end; of parts that stood already it is not known which edits they made.

    Raises:
        RequestError: an edit was never made.
    """
    if found.images and not is_resumed:
        prepared.edits.check_used()
    file = prepared.config.save_weights
    if file is not None:
        write_weights(file, prepared.edits.make_permanent(prepared.loaded.module))
    return close(folder, prepared, found)


def _hook(prepared: PreparedRun, focus: Tensor | None) -> HookedForward:
    loaded, config = prepared.loaded, prepared.config
    forward = HookedForward(
        loaded.module,
        prepared.layers,
        config.at,
        prepared.style,
        focus=None if focus is None else focus.to(loaded.info.device),
        feed=loaded.feed,
        save=config.save,
        sketch=prepared.plan.sketches,
        edits=prepared.edits,
    )
    if config.backward is None or prepared.scorer is None:
        return forward
    facts = {field.name: getattr(forward, field.name) for field in fields(forward)}
    return HookedBackward(
        **facts, score=prepared.scorer, wanted=config.backward, cams=prepared.cams
    )


def _read_parts(
    prepared: PreparedRun, writing: ChunkWriter, lock: int | None, runner: ChunkRunner
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
        part = []
        for image in itertools.islice(images, size):
            part.append(image)
            if runner.stopped:
                raise KeyboardInterrupt
        if not part:
            return
        yield number, part


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _stop_between_batches(runner: ChunkRunner) -> Iterator[None]:
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
