"""How a run is closed: findings, tables, the page and the manifest."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from hookcli.activations.pooling import saved_channels
from hookcli.documents import convert
from hookcli.errors import OutputError
from hookcli.hooks.layers import explain_uncalled
from hookcli.images.fit import require_image
from hookcli.images.prepare import prepare_image
from hookcli.passes.nan_origin import find_nan_origin
from hookcli.records.calls import Uncalled
from hookcli.records.command import to_command
from hookcli.records.images import SkippedImage
from hookcli.records.rows import LayerRow
from hookcli.records.runs import RunResult
from hookcli.render.charts.overview_png import draw_overview
from hookcli.render.report.document import ReportDocument
from hookcli.run.environment import list_versions
from hookcli.run.top_rows import choose_best, name_shown, render_top_rows
from hookcli.store import names, tables
from hookcli.store.tensors import write_index
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageFile, ImageSource
    from hookcli.plan.prepare import PreparedRun
    from hookcli.records.calls import LayerInfo
    from hookcli.records.runs import Finding
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import RunTotals

_THREADS = min(4, os.cpu_count() or 1)


def close(folder: RunFolder, prepared: PreparedRun, found: RunTotals) -> RunResult:
    """Write the tables, the page and the manifest.

    Raises:
        NoImageError: no image could be used; the list of skipped ones is written.
    """
    rows, written = write_tables(folder, prepared, found)
    require_image(found.images, [*prepared.skipped, *found.skipped])
    uncalled = _find_uncalled(prepared, found)
    seen = _find(prepared, found, uncalled)
    best = choose_best(prepared, found)
    with ThreadPoolExecutor(1) as beside:  # Python writes the table while pictures are decoded
        top_rows = beside.submit(render_top_rows, prepared, found.top)
        if not prepared.shows_all:
            written += _show_some(folder, prepared, found, name_shown(found, seen, best))
    facts = describe_request(prepared) | {
        "versions": _versions(prepared),
        "uncalled": [{"layer": u.layer.label, "reason": u.reason} for u in uncalled],
        "images": found.images,
        "skipped": [*prepared.skipped, *found.skipped],
        "findings": seen,
        "halved_batches": found.halved,
    }
    details = _details(found) | {"layers": rows, "top_images": best}
    if found.top.values:
        written.append(folder.write(names.TOP_IMAGES, top_rows.result()))
    plain = tables.plain_object(facts | details)
    document = convert(plain, ReportDocument)
    if prepared.config.backward is not None:
        written.append(_write_flow(folder, prepared, document.layers))
    written += _write_page(folder, plain, document)
    if prepared.config.overview:
        written.append(_write_overview(folder, document))
    shards = [file for file in found.files if names.is_shard(file)]
    if shards:
        channels = saved_channels(rows, prepared.config.save)
        written.append(write_index(folder.write, folder.path, shards, channels))
    files = (*found.files, *written)
    folder.complete(facts, files)
    return RunResult(
        model=prepared.loaded.info,
        images=tuple(found.images),
        skipped=(*prepared.skipped, *found.skipped),
        rows=rows,
        uncalled=uncalled,
        layers=len(prepared.layers),
        findings=seen,
        grids=tuple(found.grids),
        undrawn=_list_undrawn(prepared, found),
        failed=tuple(rule for rule in prepared.config.fail_on if any(f.rule == rule for f in seen)),
        out_dir=str(folder.path),
        files=(names.REQUEST, *files, names.MANIFEST),
    )


def _list_undrawn(prepared: PreparedRun, found: RunTotals) -> tuple[str, ...]:
    drawn = {re.sub(r"(#\d+)?(\[[^\]]*\])?$", "", heat.call_id) for heat in found.heats}
    return tuple(layer.label for layer in prepared.cams if layer.label not in drawn)


def _details(found: RunTotals) -> dict[str, Any]:
    """What the page needs beside the manifest's facts."""
    return {
        "histograms": {call: tally.histogram for call, tally in found.tally.calls.items()},
        "grids": found.grids,
        "heats": found.heats,
        "focus": found.focus,
        "written": found.written,
    }


def _write_page(folder: RunFolder, plain: dict[str, object], document: ReportDocument) -> list[str]:
    """Write ``report.json`` and ``report.html``; returns their names."""
    from hookcli.render.report.page import render_report

    return [
        folder.write(names.DOCUMENT, tables.render_json(plain).encode()),
        folder.write(names.PAGE, render_report(document).encode()),
    ]


def _write_overview(folder: RunFolder, document: ReportDocument) -> str:
    """Write ``overview.png``; returns its name.

    Raises:
        OutputError: a picture that the run has written is gone.
    """
    try:
        picture = draw_overview(document, folder.path)
    except OSError as error:
        raise OutputError(
            f"cannot draw the overview: a picture of the run is gone ({error.strerror or error})",
            "run the same command again",
        ) from error
    return folder.write(names.OVERVIEW, picture)


def _write_flow(folder: RunFolder, prepared: PreparedRun, rows: Sequence[LayerRow]) -> str:
    """Write ``gradient_flow.png``; returns its name."""
    from hookcli.render.charts.flow_png import draw_flow

    info, style = prepared.loaded.info, prepared.config.backward
    note = f"{style.score} of {style.target}" if style else ""
    heading = [f"{info.name}   gradient flow", f"{note}; weights: {info.weights}"]
    return folder.write(names.GRADIENT_FLOW, draw_flow(rows, heading))


def _show_some(
    folder: RunFolder, prepared: PreparedRun, found: RunTotals, wanted: set[str]
) -> list[str]:
    """Of a run over many images, write what the network saw of those that the page shows; returns the names."""

    def show(source: ImageSource | ImageFile) -> bytes | None:
        ready = prepare_image(prepared.fitter, source)
        if ready.pixels is None or ready.state.sha256 != found.images[places[source.key]].sha256:
            return None  # the file is no longer as it was
        return prepared.loaded.show(ready.pixels)

    places = {image.key: index for index, image in enumerate(found.images) if image.key in wanted}
    sources = [source for source in prepared.sources if source.key in places]
    written = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for source, picture in zip(sources, threads.map(show, sources), strict=True):
            if picture is not None:
                written.append(folder.write(names.seen_file(source.key), picture))
                index = places[source.key]
                found.images[index] = replace(found.images[index], seen=written[-1])
    return written


def _find(
    prepared: PreparedRun, found: RunTotals, uncalled: tuple[Uncalled, ...]
) -> tuple[Finding, ...]:
    """The findings of the run; who made a NaN or Inf is found by forwards of their own."""
    loaded = prepared.loaded
    producers: dict[str, str] = {}
    asked = {name for name in ("NaN", "Inf") if name.lower() in prepared.config.fail_on}
    for source in prepared.sources:
        held = {kind for kind, image in found.broken.items() if image == source.key}
        wanted = (held if prepared.is_long else asked | held) - producers.keys()
        ready = prepare_image(prepared.fitter, source) if wanted else None
        if ready is not None and ready.pixels is not None:
            pixels = ready.pixels.unsqueeze(0).to(loaded.info.device)
            pixels = pixels.to(getattr(torch, loaded.info.dtype))
            place = (loaded.module, loaded.feed, pixels, prepared.edits.changes)
            made = find_nan_origin(*place, prepared.edits.made, prepared.scorer)
            producers |= {kind: made[kind] for kind in wanted & made.keys()}
    evidence = Evidence(
        found.tally.calls,
        uncalled,
        [*prepared.skipped, *found.skipped],
        loaded.info,
        {
            i.key: ((i.height, i.width), (i.pixels_shape[-2], i.pixels_shape[-1]))
            for i in found.images
        },
        producers,
        found.written,
        {image.key: image.file for image in found.images},
    )
    return find(evidence, dict(prepared.config.rules))


def write_tables(
    folder: RunFolder, prepared: PreparedRun, found: RunTotals
) -> tuple[tuple[LayerRow, ...], list[str]]:
    """Write ``layers.csv`` and, if images were skipped, ``skipped.csv``.

    Returns the rows of the first, and the names of the files.
    """
    sparsities = prepared.edits.sparsities
    rows = tuple(_complete_row(prepared, row, sparsities) for row in found.tally.rows())
    written = [folder.write(names.LAYERS, tables.render_csv(LayerRow, rows).encode())]
    skipped = [*prepared.skipped, *found.skipped]
    if skipped:
        text = tables.render_csv(SkippedImage, skipped)
        written.append(folder.write(names.SKIPPED, text.encode()))
    return rows, written


def _complete_row(prepared: PreparedRun, row: LayerRow, sparsities: dict[str, float]) -> LayerRow:
    """A row with what is known of the model's own weights."""
    if row.side == "param" and row.norm is not None:
        name = ".".join(filter(None, (row.module_path, row.output_key)))
        try:
            weight = float(attrgetter(name)(prepared.loaded.module).detach().double().norm())
        except AttributeError:  # the model has taken this part of itself away
            weight = 0.0
        row = replace(row, ratio=row.norm / weight if weight else None)
    return replace(row, sparsity=sparsities.get(row.module_path))


def _find_uncalled(prepared: PreparedRun, found: RunTotals) -> tuple[Uncalled, ...]:
    """The layers without a record, and why: they did not run, or no tensor came out."""
    recorded = {
        tally.call.layer.module_path
        for tally in found.tally.calls.values()
        if tally.call.side != "param"
    }
    return tuple(
        Uncalled(layer, _explain(prepared, found, layer))
        for layer in prepared.layers
        if layer.module_path not in recorded
    )


def _explain(prepared: PreparedRun, found: RunTotals, layer: LayerInfo) -> str:
    if layer.module_path in found.called:
        return "it ran, and no tensor went in or came out"
    return explain_uncalled(prepared.loaded.module, layer)


def describe_request(prepared: PreparedRun) -> dict[str, Any]:
    """What was asked, and of which model, as ``run.json`` and the manifest hold it."""
    return {
        "hookcli": metadata.version("hookcli"),
        "command": to_command(prepared.config),
        "model": prepared.loaded.info,
        "layers": [layer.label for layer in prepared.layers],
    }


def _versions(prepared: PreparedRun) -> dict[str, str]:
    loaded = prepared.loaded
    return list_versions(loaded.module, loaded.info.device, channels_last=prepared.channels_last)
