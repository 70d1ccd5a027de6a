"""A run on one machine: images and a model in, a run folder and a RunResult out.

The run goes chunk by chunk. While the model works on one chunk, worker processes prepare the images
of the next, and threads write the pictures and tables of the previous one.
"""

from __future__ import annotations

import itertools
import signal
import threading
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hookcli.config import chunk_size
from hookcli.errors import OutputError
from hookcli.images.prepare import prepare_images
from hookcli.passes.backward import BackwardSettings, run_backward
from hookcli.passes.forward import BrokenForwardError, ForwardSettings, run_forward
from hookcli.plan.clock import Clock
from hookcli.plan.focus import describe_focus
from hookcli.plan.prepare import prepare_run
from hookcli.run.chunk_runner import ChunkRunner, ChunkSettings
from hookcli.run.chunk_writer import ChunkWriter, ProgressListener
from hookcli.run.close import close_run, write_tables
from hookcli.run.document import describe_request
from hookcli.store.folder import RunFolder
from hookcli.store.tensors import write_weights
from hookcli.summary.chunks import RunTotals
from hookcli.summary.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import GradientsConfig, InspectConfig
    from hookcli.images.prepare import PreparedImage
    from hookcli.passes.forward import Pass
    from hookcli.plan.prepare import PreparedRun
    from hookcli.records.runs import RunResult


def inspect_images(config: InspectConfig | GradientsConfig) -> RunResult:
    """Run images through a model, write the run folder, and return the result.

    Example:
        >>> request = RunRequest(ModelRequest("resnet34"), ImageRequest(("cat.jpg",)))
        >>> result = hookcli.inspect_images(InspectConfig(request))
        >>> [finding.sentence for finding in result.findings]

    Raises:
        HookcliError: the class says what went wrong; see ``hookcli.errors``.
    """
    return run(prepare_run(config))


def run(prepared: PreparedRun, listener: ProgressListener | None = None) -> RunResult:
    """Run what was prepared.

    Raises:
        RequestError: an edit changed nothing; the folder has no manifest.
        ForwardError: the model raised an exception; what was observed until then is in the folder,
            without a manifest.
        OutputError: the folder is protected or in use, or a file could not be written.
        NoImageError: no image could be used.
        KeyboardInterrupt: the run was interrupted; what is complete is in the folder.
    """
    config = prepared.settings.config
    listener, clock = listener or ProgressListener(), Clock(prepared.seconds)
    folder = RunFolder(
        prepared.settings.plan.out_dir,
        describe_request(prepared),
        prepared.planned_names,
        replace_run=config.folder.out is None,
        replace_any=config.folder.overwrite,
        resume=config.folder.resume,
    )
    totals = RunTotals(Tally(prepared.settings.limits))
    with (
        folder,
        prepared.model.pruning.restored_on_exit(),
        ChunkWriter(prepared, folder, totals, listener) as writer,
    ):
        writer.resume()
        is_resumed = bool(totals.images)
        if prepared.focus is not None:
            totals.focus = describe_focus(config.focus, prepared.focus)
        settings = _chunk_settings(prepared)
        runner = ChunkRunner(settings, folder.write, writer.grids, listener.warn, totals)
        try:
            with _stop_between_batches(runner) if prepared.settings.is_long else nullcontext():
                for number, images in _read_chunks(prepared, writer, folder.lock_number, runner):
                    writer.put(*runner.run(number, images))
                    clock.lap("forward")
                # this takes 0.07 s, and is done while the grids are being written
                import hookcli.render.report.page  # noqa: F401

                writer.finish()
        except BrokenForwardError:
            with suppress(OutputError):  # the error of the model is the one to report
                writer.finish()
                totals.merge(runner.chunk)
                write_tables(folder, prepared, totals)
            raise
        clock.lap("write grids")
        if totals.images and not is_resumed:  # the edits that earlier chunks made are unknown
            prepared.model.edits.check_used()
        if config.save_weights is not None:
            weights = prepared.model.pruning.make_permanent(prepared.model.loaded.module)
            write_weights(config.save_weights, weights)
        result = close_run(folder, prepared, totals)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


def _chunk_settings(prepared: PreparedRun) -> ChunkSettings:
    return ChunkSettings(
        run_pass=_choose_pass(prepared),
        loaded=prepared.model.loaded,
        limits=prepared.settings.limits,
        batch_size=prepared.settings.config.batch_size,
        on_error=prepared.model.request.on_error,
        merge_key=prepared.settings.merge_key,
        channels_last=prepared.settings.channels_last,
        shows_all=prepared.settings.shows_all,
        several=prepared.settings.has_several,
    )


def _choose_pass(prepared: PreparedRun) -> Pass:
    """Return what runs images through the model: forward only, or forward and backward."""
    loaded, config, focus = prepared.model.loaded, prepared.settings.config, prepared.focus
    if config.backward is None or prepared.scorer is None:
        forward = ForwardSettings(
            loaded.module,
            prepared.model.layers,
            config.at,
            prepared.settings.style,
            focus=None if focus is None else focus.to(loaded.info.device),
            save=config.tensors.save,
            sketch=prepared.settings.plan.sketches,
            feed=loaded.feed,
            edits=prepared.model.edits,
            pruning=prepared.model.pruning,
        )
        return partial(run_forward, forward)
    backward = BackwardSettings(
        loaded.module,
        prepared.model.layers,
        prepared.settings.style,
        prepared.scorer,
        config.backward,
        cams=prepared.cams,
        save=config.tensors.save,
        sketch=prepared.settings.plan.sketches,
        feed=loaded.feed,
        edits=prepared.model.edits,
        pruning=prepared.model.pruning,
    )
    return partial(run_backward, backward)


def _read_chunks(
    prepared: PreparedRun, writer: ChunkWriter, lock: int | None, runner: ChunkRunner
) -> Iterator[tuple[int, list[PreparedImage]]]:
    """Yield the number of each chunk that has not been done, and its prepared images."""
    size = chunk_size(prepared.settings.config.batch_size)
    images = prepare_images(
        prepared.model.fitter,
        prepared.model.sources[writer.done * size :],
        prepared.workers,
        writer.listener.warn,
        lock,
    )
    for number in itertools.count(writer.done):
        chunk = []
        for image in itertools.islice(images, size):
            chunk.append(image)
            if runner.stopped:
                raise KeyboardInterrupt
        if not chunk:
            return
        yield number, chunk


@contextmanager
def _stop_between_batches(runner: ChunkRunner) -> Iterator[None]:
    """Let the running batch end at the first Ctrl-C; interrupt it at the second."""
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
