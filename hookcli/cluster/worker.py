"""Define the worker, which loads the model once, and runs the chunks of images that it receives."""

from __future__ import annotations

import os
import platform
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hookcli.cluster.code import find_code
from hookcli.cluster.work import ChunkResult, WorkerFacts, WorkerFailure, list_facts
from hookcli.errors import HookcliError
from hookcli.images.prepare import prepare_images
from hookcli.outside.files import cannot_write
from hookcli.passes.forward import BrokenForwardError
from hookcli.plan.images import FoundImages
from hookcli.plan.prepared import EagerModel, add_score, choose_attention, prepare_model
from hookcli.products.catalog import list_products
from hookcli.render.draw.grid_writer import GridWriter
from hookcli.run.chunk_runner import ChunkRunner
from hookcli.store.chunks import ChunkFiles
from hookcli.store.locations.storage import use_options
from hookcli.summary.top_images import list_tops

if TYPE_CHECKING:
    from hookcli.cluster.work import Work, WorkerSetup
    from hookcli.plan.prepared import PreparedRun


class Worker:
    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._prepared: PreparedRun | None = None

    def prepare(self) -> WorkerFacts | WorkerFailure:
        setup = self._setup
        use_options(setup.settings.config.machine.storage)
        sent = setup.home
        with suppress(FileNotFoundError):  # Ray deletes the working directory on a lost node
            sent = Path.cwd()
        if setup.home.is_dir():
            os.chdir(setup.home)
        torch.set_num_threads(setup.threads)
        try:
            config = find_code(setup.settings.config, sent)
            if setup.weights is not None:
                model_here = setup.weights.store(config.run.model)
                config = replace(config, run=replace(config.run, model=model_here))
            settings = replace(setup.settings, config=config)
            found = FoundImages([setup.first], [])
            model = prepare_model(config.run, found, config.edited_side, config.at)
            attention = None
            if isinstance(model, EagerModel):
                if settings.channels_last:
                    model.loaded.use_channels_last()
                attention = choose_attention(settings, model.loaded, model.sources)
            self._prepared = add_score(replace(model, fitter=setup.fitter), settings, attention)
        except HookcliError as error:
            error.hint = "; ".join(filter(None, (error.hint, f"on the node {platform.node()}")))
            return WorkerFailure.from_error(error)
        self._setup = replace(setup, weights=None)  # frees the memory of the weights
        return list_facts(model, setup, config)

    def run(self, work: Work) -> ChunkResult | WorkerFailure:
        try:
            return self._run(work)
        except OSError as error:
            return WorkerFailure(cannot_write(self._setup.folder, error), None, error.errno)
        except HookcliError as error:
            return WorkerFailure.from_error(error)

    def _run(self, work: Work) -> ChunkResult | WorkerFailure:
        assert self._prepared is not None  # noqa: S101
        settings, files = self._setup.settings, ChunkFiles()
        warnings: list[str] = []
        images = prepare_images(self._setup.fitter, work.sources, 0, warnings.append)
        model = settings.config.run.model.name
        with closing(GridWriter(files.write, settings.style, model)) as grids:
            products, warn = list_products(settings), warnings.append
            runner = ChunkRunner(self._prepared, products, grids, warn=warn, start=work.start)
            try:
                ended = runner.run(work.number, list(images))
            except BrokenForwardError as error:
                return WorkerFailure.from_error(error, runner.running.chunk)
            for job in ended.jobs:
                job()
        positions = {source.key: work.first_image + i for i, source in enumerate(work.sources)}
        count = settings.config.top_images * settings.has_several
        tops = list_tops(count, ended.list_records(), positions)
        files.save(self._setup.folder, ended.chunk)
        return ChunkResult(ended.chunk, tops, platform.node(), tuple(warnings))
