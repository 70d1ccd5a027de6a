"""Run images through a model on one machine, chunk by chunk; handle Ctrl-C and failures."""

from __future__ import annotations

import itertools
import signal
import threading
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.errors import OutputError, RequestError
from hookcli.images.prepare import prepare_images
from hookcli.networks.device import use_threads
from hookcli.passes.forward import BrokenForwardError
from hookcli.plan.clock import Clock
from hookcli.plan.folder import plan_names
from hookcli.plan.prepare import prepare_run
from hookcli.products.catalog import list_products
from hookcli.run.chunk_runner import ChunkRunner, ChunkStart
from hookcli.run.chunk_writer import ChunkWriter
from hookcli.run.close import close_run, describe_request, write_tables
from hookcli.run.listener import ProgressListener
from hookcli.store.folder import RunFolder
from hookcli.summary.chunks import Chunk, chunk_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import GradientsConfig, InspectConfig
    from hookcli.images.prepare import PreparedImage
    from hookcli.plan.prepared import PreparedRun
    from hookcli.run.result import RunResult


def inspect_images(config: InspectConfig | GradientsConfig) -> RunResult:
    if config.machine.cluster is not None:
        what = "inspect_images runs on this machine alone"
        raise RequestError(what, "leave `cluster` out; the command line can use one")
    return run(prepare_run(config))


def run(prepared: PreparedRun, listener: ProgressListener | None = None) -> RunResult:
    # If the model fails, the folder has a table of the observations so far, but no manifest. After
    # Ctrl-C, it has the files of the finished chunks.
    settings, config = prepared.settings, prepared.settings.config
    listener, clock = listener or ProgressListener(), Clock(prepared.seconds)
    totals = Chunk()
    with (
        use_threads(config.machine.threads),
        closing(prepared.model.runner),
        make_folder(prepared) as folder,
        prepared.model.runner.unchanged(),
        ChunkWriter(
            settings, prepared.model.sources, folder, totals=totals, listener=listener
        ) as writer,
    ):
        products = list_products(settings)
        start = ChunkStart.after(totals)
        runner = ChunkRunner(prepared, products, writer.grids, warn=listener.warn, start=start)
        try:
            with _stop_between_batches(runner) if settings.is_long else nullcontext():
                for number, images in _read_chunks(prepared, writer, runner):
                    writer.put(runner.run(number, images))
                    clock.lap("forward")
                # takes 0.07 s, while threads write the grids
                import hookcli.render.report.page  # noqa: F401

                writer.finish()
                if runner.stopped:  # after the last batch
                    raise KeyboardInterrupt
        except BrokenForwardError:
            with suppress(OutputError):  # report the error of the model instead
                writer.finish()
                totals.merge(runner.running.chunk)
                write_tables(folder, prepared.model, totals)
            raise
        clock.lap("write grids")
        result = close_run(folder, prepared, products, totals=totals, top=writer.top)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


def make_folder(prepared: PreparedRun) -> RunFolder:  # the caller's ``with`` opens it
    return RunFolder(
        prepared.settings.plan.out_dir,
        describe_request(prepared),
        plan_names(prepared.settings, prepared.model.sources),
        resume=prepared.settings.config.folder.resume,
    )


def _read_chunks(
    prepared: PreparedRun, writer: ChunkWriter, runner: ChunkRunner
) -> Iterator[tuple[int, list[PreparedImage]]]:
    size = chunk_size(prepared.settings.config.batch_size)
    images = prepare_images(
        prepared.model.fitter,
        prepared.model.sources[writer.done * size :],
        prepared.workers,
        warn=writer.listener.warn,
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
    """Let the first Ctrl-C in the block stop the run only after the current batch."""
    # A second Ctrl-C stops the run at once. Only the main thread can catch Ctrl-C.
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
