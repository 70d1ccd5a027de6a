"""Run a model over images on a Ray cluster: send chunks to workers, and add up their results."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.cluster.ray_cluster import join_cluster
from hookcli.cluster.weights import read_model, read_weights
from hookcli.cluster.work import ChunkResult, Work, WorkerFailure, WorkerSetup, list_facts
from hookcli.cluster.worker_pool import WorkerPool
from hookcli.errors import ModelError, OutputError
from hookcli.networks.device import use_threads
from hookcli.networks.weights import pin_weights
from hookcli.plan.clock import Clock
from hookcli.plan.prepared import EagerModel
from hookcli.products.catalog import list_products
from hookcli.run.chunk_runner import ChunkStart
from hookcli.run.close import close_run, write_tables
from hookcli.run.listener import ProgressListener
from hookcli.run.pipeline import make_folder
from hookcli.run.resume import resume_chunks
from hookcli.store.chunks import write_top
from hookcli.store.locations.names import chunk_file, chunk_journal
from hookcli.summary.chunks import Chunk, chunk_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import ClusterRequest
    from hookcli.plan.prepared import PreparedModel, PreparedRun, RunSettings
    from hookcli.run.result import RunResult
    from hookcli.store.folder import RunFolder


_SAVED_EVERY = 5.0  # seconds between saves of the top images, each as slow as all else in add()


def run_on_cluster(
    prepared: PreparedRun, cluster: ClusterRequest, listener: ProgressListener | None = None
) -> RunResult:
    listener, clock = listener or ProgressListener(), Clock(prepared.seconds)
    totals, model = Chunk(), prepared.model
    settings = _pin_model(prepared.settings, model)
    setup = WorkerSetup(
        settings=settings,
        fitter=prepared.model.fitter,
        first=prepared.model.first.source,
        folder=settings.plan.out_dir.absolute(),
        home=Path.cwd(),
        threads=cluster.cpus,
        weights=(
            read_weights(model.loaded.source, settings.config.run.model)
            if isinstance(model, EagerModel)
            else read_model(settings.config.run.model)
        ),
    )
    with (
        use_threads(cluster.cpus),
        closing(model.runner),
        make_folder(prepared) as folder,
        join_cluster(cluster, setup) as ray_cluster,
    ):
        warn = cache(listener.warn)  # reports each warning once, even if several workers send it
        pool = WorkerPool(ray_cluster, list_facts(model, setup, settings.config), warn)
        merger = _Merger(prepared, folder, totals, listener)
        try:
            for done in _run_chunks(pool, merger):
                for text in done.warnings:
                    warn(text)
                merger.add(done)
        except (ModelError, KeyboardInterrupt):
            with suppress(OutputError):
                merger.save_top()
            raise
        clock.lap("forward")
        result = close_run(folder, prepared, list_products(settings), totals=totals, top=merger.top)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


def _pin_model(settings: RunSettings, model: PreparedModel) -> RunSettings:
    """Return settings with the driver's weights and device, so that workers choose no others."""
    if not isinstance(model, EagerModel):
        return settings
    request, loaded = settings.config.run, model.loaded
    pinned = pin_weights(loaded.source, request.model, loaded.info.weights)
    pinned = replace(pinned, device=loaded.info.device.partition(":")[0])
    return replace(settings, config=replace(settings.config, run=replace(request, model=pinned)))


def _run_chunks(pool: WorkerPool, merger: _Merger) -> Iterator[ChunkResult]:
    # A chunk depends on facts that earlier chunks reveal: the input shape, and whether images can
    # share a forward pass. So the first chunks run one by one, and a chunk runs again if earlier
    # chunks then change these facts.
    waiting: dict[int, tuple[Work, ChunkResult | WorkerFailure]] = {}
    following = merger.following
    while merger.following < merger.count:
        start = merger.start
        room = pool.capacity if start.first_shape else 1
        while following < min(merger.count, merger.following + room):
            pool.submit(merger.make_work(following))
            following += 1
        while merger.following not in waiting:
            work, result = pool.wait()
            waiting[work.number] = work, result
        work, result = waiting[merger.following]
        if work.start != start:
            for number in [n for n, (other, _) in waiting.items() if other.start != start]:
                del waiting[number]
                pool.submit(merger.make_work(number))
        elif isinstance(result, WorkerFailure):
            if result.part is not None:
                merger.write_part(result.part)
            raise result.error()
        else:
            del waiting[merger.following]
            yield result


class _Merger:
    def __init__(
        self, prepared: PreparedRun, folder: RunFolder, totals: Chunk, listener: ProgressListener
    ) -> None:
        settings = prepared.settings
        self._prepared, self._folder, self._totals = prepared, folder, totals
        self._listener = listener
        self._size = chunk_size(settings.config.batch_size)
        self._saved = -_SAVED_EVERY  # the time when the top images were last saved
        sources = prepared.model.sources
        self.top = resume_chunks(settings, sources, folder, totals=totals, listener=listener)
        self.following = self.top.chunks  # the number of the next chunk to add
        self.count = -(-settings.images // self._size)  # the number of chunks of the run

    @property
    def start(self) -> ChunkStart:
        return ChunkStart.after(self._totals)

    def make_work(self, number: int) -> Work:
        first = number * self._size
        sources = self._prepared.model.sources[first : first + self._size]
        return Work(number, tuple(sources), first, self.start)

    def add(self, done: ChunkResult) -> None:
        totals, number = self._totals, self.following
        self._folder.adopt({*done.chunk.written_files, chunk_file(number), chunk_journal(number)})
        totals.merge(done.chunk)
        for kept in done.tops:
            self.top.merge(kept)
        self.following += 1
        if time.monotonic() - self._saved >= _SAVED_EVERY:
            self.save_top()
        self._listener.worked(done.node, len(done.chunk.images) + len(done.chunk.skipped))
        self._listener.chunk_done(len(totals.images) + len(totals.skipped), len(totals.skipped))

    def save_top(self) -> None:
        write_top(self._folder, self.top)
        self._saved = time.monotonic()

    def write_part(self, part: Chunk) -> None:
        self._totals.merge(part)
        with suppress(OutputError):  # report the error of the model instead
            write_tables(self._folder, self._prepared.model, self._totals)
