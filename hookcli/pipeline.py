"""A run on one machine: images and a model in, a run folder and a RunResult out."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from hookcli import aggregate
from hookcli.config import to_command
from hookcli.forward import BrokenForwardError, HookedForward
from hookcli.layers import explain_uncalled
from hookcli.models import read_predictions
from hookcli.planning import Clock, prepare_run
from hookcli.records import LayerRecord, Uncalled
from hookcli.results import ImageResult, RunResult, SkippedImage
from hookcli.sinks import table
from hookcli.sinks.grids import GridWriter
from hookcli.sinks.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from hookcli.config import InspectConfig
    from hookcli.feature_maps import Picture
    from hookcli.forward import BatchResult
    from hookcli.images import ImageSource
    from hookcli.models import LoadedModel
    from hookcli.planning import PreparedRun
    from hookcli.records import LayerInfo


def inspect_images(config: InspectConfig) -> RunResult:
    """Run the images through the model, write the run folder, and return what was found.

    Raises:
        HookcliError: see ``hookcli.errors`` for what each means.
    """
    return run(prepare_run(config))


def run(prepared: PreparedRun) -> RunResult:
    """Do what was prepared.

    Raises:
        ForwardError: the model raised; what was observed until then is in the folder, without a
            manifest.
        OutputError: the folder is protected or in use, or a file could not be written.
    """
    config = prepared.config
    clock = Clock(prepared.seconds)
    folder = RunFolder(
        prepared.plan.out_dir,
        _request(config),
        replace_run=config.out is None,
        replace_any=config.overwrite,
    )
    loaded = prepared.loaded
    forward = HookedForward(
        loaded.module, prepared.layers, config.at, config.grids, feed=loaded.feed
    )
    with folder:
        writer = GridWriter(folder.folder, config.grids)
        found = _Found()
        try:
            for sources, pixels in _batches(loaded, prepared.sources, config.batch_size):
                found.add(_run_batch(prepared, forward, sources, pixels), writer)
                clock.lap("forward")
            writer.finish()
        except BrokenForwardError as error:
            found.add_partial(error.partial, writer)
            writer.finish()
            _write_tables(folder, prepared, found)
            raise
        finally:
            writer.close()
        clock.lap("write grids")
        result = _close(folder, prepared, found)
        clock.lap("write tables")
    return replace(result, seconds=clock.seconds)


@dataclass(slots=True)
class _Found:
    """What a run has found so far."""

    images: list[ImageResult] = field(default_factory=list)
    records: list[LayerRecord] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    def add(self, batch: tuple[list[ImageResult], list[BatchResult]], writer: GridWriter) -> None:
        """Take over a finished batch; its pictures are queued."""
        images, results = batch
        self.images += images
        for result in results:
            self.add_partial(result, writer)

    def add_partial(self, result: BatchResult, writer: GridWriter) -> None:
        """Take over the records of one forward, whether or not it came to its end."""
        self.called |= result.called
        grids = _queue_pictures(result.pictures, writer)
        self.files += dict.fromkeys(grids.values())
        for record in result.records:
            grid = grids.get((record.image, record.call.id), "")
            self.records.append(replace(record, grid=grid))


def _batches(
    loaded: LoadedModel, sources: Sequence[ImageSource], size: int
) -> Iterator[tuple[list[ImageSource], Tensor]]:
    """The first image alone (see ``HookedForward.run``), then up to ``size`` of one shape at a time, in order."""
    batch: list[ImageSource] = []
    pixels: list[Tensor] = []
    limit = 1
    for source in sources:
        prepared = _prepare(loaded, source)
        if batch and (len(batch) == limit or prepared.shape != pixels[0].shape):
            yield batch, torch.stack(pixels)
            batch, pixels, limit = [], [], size
        batch.append(source)
        pixels.append(prepared)
    yield batch, torch.stack(pixels)


def _prepare(loaded: LoadedModel, source: ImageSource) -> Tensor:
    """The pixels of one image on the CPU."""
    if source.pixels is None:
        return loaded.prepare.to_pixels(source.pictures).float()
    return loaded.prepare.repeat(torch.from_numpy(source.pixels.astype("float32")))


def _run_batch(
    prepared: PreparedRun, forward: HookedForward, sources: Sequence[ImageSource], pixels: Tensor
) -> tuple[list[ImageResult], list[BatchResult]]:
    loaded = prepared.loaded
    device, dtype = loaded.info.device, getattr(torch, loaded.info.dtype)
    results = forward.run([s.key for s in sources], pixels.to(device=device, dtype=dtype))
    read = [p for result in results for p in read_predictions(result.output, loaded.categories)]
    predictions = read if len(read) == len(sources) else [()] * len(sources)
    shape = (1, *pixels.shape[1:])
    images = []
    for source, said in zip(sources, predictions, strict=True):
        note = loaded.prepare.describe(max(len(source.pictures), source.frame_count))
        width, height = source.size
        images.append(
            ImageResult(source.key, source.file, width, height, source.sha256, said, shape, note)
        )
    return images, results


def _queue_pictures(pictures: Sequence[Picture], writer: GridWriter) -> dict[tuple[str, str], str]:
    """Hand pictures to the writer; the file of each image and call id."""
    if writer.mode == "sheet":
        return _queue_sheets(pictures, writer)
    return {(p.image, p.call.id): writer.write_grid(p) for p in pictures}


def _queue_sheets(pictures: Sequence[Picture], writer: GridWriter) -> dict[tuple[str, str], str]:
    files: dict[tuple[str, str], str] = {}
    for image in dict.fromkeys(picture.image for picture in pictures):
        mine = sorted((p for p in pictures if p.image == image), key=lambda p: p.call.order)
        file = writer.write_sheet(image, mine)
        files |= {(image, picture.call.id): file for picture in mine}
    return files


def _close(folder: RunFolder, prepared: PreparedRun, found: _Found) -> RunResult:
    """Write the tables and the manifest."""
    uncalled = _find_uncalled(prepared, found)
    _write_tables(folder, prepared, found)
    info = prepared.loaded.info
    files = (*found.files, *folder.files)
    manifest = _request(prepared.config) | {
        "versions": _versions(),
        "model": info,
        "layers": [layer.label for layer in prepared.layers],
        "uncalled": [{"layer": u.layer.label, "reason": u.reason} for u in uncalled],
        "images": found.images,
        "skipped": prepared.skipped,
        "files": sorted(["run.json", *files]),
    }
    folder.complete(manifest)
    return RunResult(
        model=info,
        images=tuple(found.images),
        skipped=tuple(prepared.skipped),
        records=tuple(found.records),
        uncalled=uncalled,
        layers=len(prepared.layers),
        out_dir=str(folder.folder),
        files=("run.json", *files, "manifest.json"),
    )


def _write_tables(folder: RunFolder, prepared: PreparedRun, found: _Found) -> None:
    rows = aggregate.aggregate_layers(found.records)
    folder.write("layers.csv", table.render_csv(aggregate.LayerRow, rows))
    if prepared.skipped:
        folder.write("skipped.csv", table.render_csv(SkippedImage, prepared.skipped))


def _find_uncalled(prepared: PreparedRun, found: _Found) -> tuple[Uncalled, ...]:
    """The layers without a record, and why: they did not run, or no tensor came out."""
    recorded = {record.call.layer.module_path for record in found.records}
    return tuple(
        Uncalled(layer, _explain(prepared, found, layer))
        for layer in prepared.layers
        if layer.module_path not in recorded
    )


def _explain(prepared: PreparedRun, found: _Found, layer: LayerInfo) -> str:
    if layer.module_path in found.called:
        return "it ran, and no tensor went in or came out"
    return explain_uncalled(prepared.loaded.module, layer)


def _request(config: InspectConfig) -> dict[str, Any]:
    return {"hookcli": metadata.version("hookcli"), "command": to_command(config)}


def _versions() -> dict[str, str]:
    names = ("hookcli", "torch", "torchvision", "pillow", "numpy")
    facts = {name: metadata.version(name) for name in names}
    return facts | {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": str(torch.get_num_threads()),
    }
