"""Derive findings at the end of a run; write tables, documents, the page and the manifest."""

from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from hookcli.images.fit import require_image
from hookcli.images.prepare import prepare_image
from hookcli.outside import json_text, tables
from hookcli.outside.documents import to_fields
from hookcli.passes.eager import EagerRunner
from hookcli.passes.nan_origin import find_nan_origin
from hookcli.plan.folder import hash_inputs
from hookcli.plan.prepared import require_eager
from hookcli.products.heats import explain_heatless
from hookcli.products.product import RunEnd
from hookcli.records.calls import Uncalled
from hookcli.records.command import command_words, list_options, repeatable
from hookcli.records.images import SkippedImage
from hookcli.records.report import FinishedRun, ReportDocument, RequestFile
from hookcli.records.rows import LayerRow
from hookcli.render.draw.canvas import colormap_of, list_stops
from hookcli.run.result import RunResult
from hookcli.store.locations import names
from hookcli.store.tensors import write_weights
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings
from hookcli.summary.tally import list_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.passes.runner import Runner
    from hookcli.plan.prepared import PreparedModel, PreparedRun
    from hookcli.products.product import Product
    from hookcli.records.runs import Finding
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk
    from hookcli.summary.top_images import TopTally

_LATE = "it was not observed: a later image calls it, but the first one does not"


def close_run(
    folder: RunFolder,
    prepared: PreparedRun,
    products: Sequence[Product],
    totals: Chunk,
    top: TopTally,
) -> RunResult:
    model, config = prepared.model, prepared.settings.config
    if totals.images:
        model.runner.edits.check_used(totals.edits.used)
    if config.save_weights is not None:
        eager = require_eager(model, "`save_weights`")
        write_weights(config.save_weights, eager.runner.pruning.make_permanent(eager.runner.module))
    rows, written = write_tables(folder, model, totals)
    require_image(totals.images, [*model.skipped, *totals.skipped])
    uncalled, findings = diagnose(prepared, totals)
    known = (totals, top, rows, uncalled, findings, prepared.focus)
    end = RunEnd(folder, model.loaded, model.fitter, model.sources, *known)
    from hookcli.render.report.page import render_report

    with ThreadPoolExecutor() as threads:  # one product decodes pictures, another renders a table
        for files in threads.map(lambda product: product.close(end), products):
            written += files
    facts = assemble_facts(prepared, end)
    shown = {name: value for each in products for name, value in each.describe(end).items()}
    colours = tuple(list_stops(colormap_of(prepared.settings.style)))
    whole = ReportDocument(**{**to_fields(facts), "focus": None, **shown}, colours=colours)
    document: ReportDocument = json_text.plain(whole)
    written.append(folder.write(names.DOCUMENT, json_text.encode_json(document)))
    written.append(folder.write(names.PAGE, render_report(document).encode()))
    for product in products:
        written += product.illustrate(document, end)
    files = [*totals.written_files, *written]
    folder.complete(facts, files)  # writes the manifest
    fail_on, found = config.findings.fail_on, {finding.rule for finding in findings}
    return RunResult(
        model=facts.model,
        images=facts.images,
        skipped=facts.skipped,
        rows=rows,
        uncalled=uncalled,
        layers=len(model.runner.layers),
        findings=findings,
        grids=tuple(totals.grids),
        attention=whole.attention,
        cams=tuple(heat for heat in totals.heats if heat.kind == "cam"),
        undrawn=_list_undrawn(prepared, totals) or explain_heatless(end, config),
        failed=tuple(rule for rule in fail_on if rule in found),
        out_dir=str(folder.path),
        files=(names.REQUEST, *files, names.MANIFEST),
    )


def _list_undrawn(prepared: PreparedRun, totals: Chunk) -> dict[str, str]:
    drawn = [heat.call_id for heat in totals.heats if heat.kind == "cam"]
    undrawn: dict[str, str] = {}
    backward = prepared.settings.config.backward
    if drawn and backward and backward.cam_mean:
        return undrawn
    for layer, target in itertools.product(prepared.cams, prepared.scorers):
        of = f"@{target}" if target else ""
        form = re.compile(rf"{re.escape(layer.label)}(#\d+)?(\[[^\]]*\])?{re.escape(of)}")
        if not any(map(form.fullmatch, drawn)):
            reason = totals.heatless.get(layer.label)
            of = "" if reason else of
            undrawn[f"{layer.label}{of}"] = reason or "no gradient reached it"
    return undrawn


def write_tables(
    folder: RunFolder, model: PreparedModel, totals: Chunk
) -> tuple[tuple[LayerRow, ...], list[str]]:
    rows = list_rows(totals.calls, model.runner.sparsities, model.runner.norm_of)
    written = [folder.write(names.LAYERS, tables.render_csv(LayerRow, rows).encode())]
    skipped = [*model.skipped, *totals.skipped]
    if skipped:
        text = tables.render_csv(SkippedImage, skipped)
        written.append(folder.write(names.SKIPPED, text.encode()))
    return rows, written


def diagnose(
    prepared: PreparedRun, totals: Chunk
) -> tuple[tuple[Uncalled, ...], tuple[Finding, ...]]:
    # hookcli may run the model again, to find out which module made a NaN.
    model = prepared.model
    uncalled = tuple(_find_uncalled(model.runner, totals))
    evidence = Evidence(
        calls=totals.calls,
        uncalled=uncalled,
        skipped=[*model.skipped, *totals.skipped],
        model=model.loaded.info,
        takes_any_size=model.loaded.task.takes_any_size,
        sizes={
            image.key: (
                (image.height, image.width),
                (image.pixels_shape[-2], image.pixels_shape[-1]),
            )
            for image in totals.images
        },
        producers=_find_nan_origins(prepared, totals),
        written=totals.written,
        unsteady=totals.unsteady,
        files={image.key: image.file for image in totals.images},
        intensities={
            image.key: image.intensities for image in totals.images if image.intensities is not None
        },
        cams=[heat for heat in totals.heats if heat.kind == "cam"],
        idle_norms=model.runner.find_idle_norms() if isinstance(model.runner, EagerRunner) else {},
    )
    return uncalled, list_findings(evidence, dict(prepared.settings.config.findings.rules))


def _find_uncalled(runner: Runner, totals: Chunk) -> Iterator[Uncalled]:
    recorded = {
        tally.call.layer.module_path
        for tally in totals.calls.values()
        if tally.call.side != "param"
    }
    for layer in runner.layers:
        if layer.module_path in totals.called.keys() - recorded:
            what = totals.called[layer.module_path]
            yield Uncalled(layer, f"it ran, but {what or 'no tensor of it was observed'}")
        elif layer.module_path not in recorded:
            yield Uncalled(layer, runner.explain_uncalled(layer))
    yield from (Uncalled(layer, _LATE) for layer in runner.find_late(totals.called))


def _find_nan_origins(prepared: PreparedRun, totals: Chunk) -> dict[str, str]:
    # A layer that was not chosen may make a NaN in any image, so ``--fail-on`` tries every image,
    # unless the run has several chunks.
    model, settings = prepared.model, prepared.settings
    producers: dict[str, str] = {}
    if not isinstance(model.runner, EagerRunner):
        return producers
    asked = {name for name in ("NaN", "Inf") if name.lower() in settings.config.findings.fail_on}
    for source in model.sources:
        seen = {kind for kind, image in totals.broken.items() if image == source.key}
        wanted = (seen if settings.is_long else asked | seen) - producers.keys()
        image = prepare_image(model.fitter, source) if wanted else None
        if image is not None and image.pixels is not None:
            pixels = model.runner.to_device(image.pixels.unsqueeze(0))
            made = find_nan_origin(model.runner, pixels, totals.edits.made, prepared.scorers)
            producers |= {kind: made[kind] for kind in wanted & made.keys()}
    return producers


def describe_request(prepared: PreparedRun) -> RequestFile:
    model, config = prepared.model, prepared.settings.config
    score = "" if config.backward is None else config.backward.score
    return RequestFile(
        hookcli=metadata.version("hookcli"),
        command=repeatable(command_words(config.command, config)),
        options=list_options(config),
        versions=model.runner.versions() | model.loaded.prepare.versions,
        code={**model.loaded.hash_code(score), **hash_inputs(config)},
        model=model.loaded.info,
        layers=tuple(layer.label for layer in model.runner.layers),
    )


def assemble_facts(prepared: PreparedRun, end: RunEnd) -> FinishedRun:
    model, totals = prepared.model, end.totals
    versions = model.runner.versions() | model.loaded.prepare.versions
    return FinishedRun(
        **to_fields(replace(end.folder.request, versions=versions)),
        uncalled=tuple(layer.row() for layer in end.uncalled),
        images=tuple(totals.images),
        skipped=(*model.skipped, *totals.skipped),
        findings=end.findings,
        halved_batches=totals.halved,
        features=prepared.features,
    )
