"""What a run has found, and how it is closed: findings, tables, the page and the manifest."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from hookcli import aggregate, findings
from hookcli.config import to_command
from hookcli.hooks import named_tensors
from hookcli.layers import explain_uncalled
from hookcli.producer import find_producers
from hookcli.records import LayerRecord, Uncalled
from hookcli.results import ImageResult, RunResult, SkippedImage
from hookcli.sinks import table
from hookcli.sinks.overview import draw_overview
from hookcli.stats import name_not_finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.config import InspectConfig
    from hookcli.feature_maps import Picture
    from hookcli.forward import BatchResult
    from hookcli.images import ImageSource
    from hookcli.models import LoadedModel
    from hookcli.planning import PreparedRun
    from hookcli.records import LayerInfo
    from hookcli.results import Finding, Grid
    from hookcli.sinks.grids import GridWriter
    from hookcli.sinks.run_folder import RunFolder


@dataclass(slots=True)
class Found:
    """What a run has found so far."""

    images: list[ImageResult] = field(default_factory=list)
    records: list[LayerRecord] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)  # NaN, Inf: the first image that holds it
    focus: dict[str, Any] | None = None  # the box, and where it is in what the network sees
    written: dict[str, str] = field(default_factory=dict)  # who wrote over what a call returned

    def add(self, batch: tuple[list[ImageResult], list[BatchResult]], writer: GridWriter) -> None:
        """Take over a finished batch; its pictures are queued."""
        images, results = batch
        self.images += images
        for result in results:
            self.add_partial(result, writer)
            for kind in _kinds_of(result.output):
                self.broken.setdefault(kind, result.keys[0])

    def add_partial(self, result: BatchResult, writer: GridWriter) -> None:
        """Take over the records of one forward, whether or not it came to its end."""
        self.called |= result.called
        grids = _queue_pictures(result.pictures, writer)
        self.files += dict.fromkeys(grids.values())
        for record in result.records:
            grid = grids.get((record.image, record.call.id), "")
            self.records.append(replace(record, grid=grid))
            for kind, count in (("NaN", record.stats.nan_count), ("Inf", record.stats.inf_count)):
                if count:
                    self.broken.setdefault(kind, record.image)


def _queue_pictures(pictures: Sequence[Picture], writer: GridWriter) -> dict[tuple[str, str], str]:
    """Hand pictures to the writer; the file of each image and call id."""
    if writer.style.mode == "sheet":
        return _queue_sheets(pictures, writer)
    return {(p.image, p.call.id): writer.write_grid(p) for p in pictures}


def _queue_sheets(pictures: Sequence[Picture], writer: GridWriter) -> dict[tuple[str, str], str]:
    files: dict[tuple[str, str], str] = {}
    for image in dict.fromkeys(picture.image for picture in pictures):
        mine = sorted((p for p in pictures if p.image == image), key=lambda p: p.call.order)
        file = writer.write_sheet(image, mine)
        files |= {(image, picture.call.id): file for picture in mine}
    return files


def prepare_pixels(loaded: LoadedModel, source: ImageSource) -> Tensor:
    """The pixels of one image on the CPU."""
    if source.pixels is None:
        return loaded.prepare.to_pixels(source.pictures).float()
    return loaded.prepare.repeat(torch.from_numpy(source.pixels.astype("float32")))


def close(
    folder: RunFolder, prepared: PreparedRun, found: Found, grids: Sequence[Grid]
) -> RunResult:
    """Write the tables, the page and the manifest."""
    from hookcli.sinks.report import render_report

    uncalled = _find_uncalled(prepared, found)
    seen = _find(prepared, found, uncalled)
    write_tables(folder, prepared, found)
    info = prepared.loaded.info
    facts = describe_request(prepared.config) | {
        "versions": _versions(),
        "model": info,
        "uncalled": [{"layer": u.layer.label, "reason": u.reason} for u in uncalled],
        "images": found.images,
        "skipped": prepared.skipped,
        "findings": seen,
    }
    document = table.to_plain(
        facts
        | {
            "layers": aggregate.aggregate_layers(found.records),
            "histograms": {r.call.id: r.histogram for r in reversed(found.records)},
            "grids": grids,
            "focus": found.focus,
            "written": found.written,
        }
    )
    folder.write("report.json", table.render_json(document))
    folder.write("report.html", render_report(document))
    if prepared.config.overview:
        folder.write_bytes("overview.png", draw_overview(document, folder.folder))
    files = (*found.files, *folder.files)
    chosen = [layer.label for layer in prepared.layers]
    folder.complete(facts | {"layers": chosen, "files": sorted(["run.json", *files])})
    return RunResult(
        model=info,
        images=tuple(found.images),
        skipped=tuple(prepared.skipped),
        records=tuple(found.records),
        uncalled=uncalled,
        layers=len(prepared.layers),
        findings=seen,
        grids=tuple(grids),
        failed=tuple(rule for rule in prepared.config.fail_on if any(f.rule == rule for f in seen)),
        out_dir=str(folder.folder),
        files=("run.json", *files, "manifest.json"),
    )


def _find(
    prepared: PreparedRun, found: Found, uncalled: tuple[Uncalled, ...]
) -> tuple[Finding, ...]:
    """The findings of the run; who made a NaN or Inf is found by forwards of their own."""
    loaded = prepared.loaded
    producers: dict[str, str] = {}
    asked = {name for name in ("NaN", "Inf") if name.lower() in prepared.config.fail_on}
    for source in prepared.sources:
        held = {kind for kind, image in found.broken.items() if image == source.key}
        wanted = (asked | held) - producers.keys()
        if wanted:
            pixels = prepare_pixels(loaded, source).unsqueeze(0).to(loaded.info.device)
            pixels = pixels.to(getattr(torch, loaded.info.dtype))
            made = find_producers(loaded.module, loaded.feed, pixels)
            producers |= {kind: made[kind] for kind in wanted & made.keys()}
    evidence = findings.Evidence(
        found.records,
        uncalled,
        prepared.skipped,
        loaded.info,
        {
            i.key: ((i.height, i.width), (i.pixels_shape[-2], i.pixels_shape[-1]))
            for i in found.images
        },
        producers,
        found.written,
    )
    return findings.find(evidence, dict(prepared.config.rules))


def _kinds_of(output: object) -> list[str]:
    """Which of ``NaN`` and ``Inf`` the model's own output holds."""
    found = " ".join(name_not_finite(tensor) for _, tensor in named_tensors(output))
    return [kind for kind in ("NaN", "Inf") if kind in found]


def write_tables(folder: RunFolder, prepared: PreparedRun, found: Found) -> None:
    """Write ``layers.csv`` and, if images were skipped, ``skipped.csv``."""
    rows = aggregate.aggregate_layers(found.records)
    folder.write("layers.csv", table.render_csv(aggregate.LayerRow, rows))
    if prepared.skipped:
        folder.write("skipped.csv", table.render_csv(SkippedImage, prepared.skipped))


def _find_uncalled(prepared: PreparedRun, found: Found) -> tuple[Uncalled, ...]:
    """The layers without a record, and why: they did not run, or no tensor came out."""
    recorded = {record.call.layer.module_path for record in found.records}
    return tuple(
        Uncalled(layer, _explain(prepared, found, layer))
        for layer in prepared.layers
        if layer.module_path not in recorded
    )


def _explain(prepared: PreparedRun, found: Found, layer: LayerInfo) -> str:
    if layer.module_path in found.called:
        return "it ran, and no tensor went in or came out"
    return explain_uncalled(prepared.loaded.module, layer)


def describe_request(config: InspectConfig) -> dict[str, Any]:
    """What was asked, as ``run.json`` and the manifest hold it."""
    return {"hookcli": metadata.version("hookcli"), "command": to_command(config)}


def _versions() -> dict[str, str]:
    names = ("hookcli", "torch", "torchvision", "pillow", "numpy")
    facts = {name: metadata.version(name) for name in names}
    return facts | {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": str(torch.get_num_threads()),
    }
