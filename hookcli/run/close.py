"""The end of a run: its findings are made, and tables, page and manifest are written."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from hookcli.activations.pooling import saved_channels
from hookcli.errors import OutputError
from hookcli.escape import for_page
from hookcli.images.fit import require_image
from hookcli.images.prepare import prepare_image
from hookcli.records.attention import AttentionRow
from hookcli.records.images import SkippedImage
from hookcli.records.rows import LayerRow
from hookcli.records.runs import MOST_CHANNELS, RunResult
from hookcli.records.text import and_more
from hookcli.render.charts.overview_png import draw_overview
from hookcli.run.diagnose import diagnose
from hookcli.run.document import assemble_document, assemble_facts, describe_versions
from hookcli.run.top_rows import choose_best, name_shown, rank_images, render_top_rows
from hookcli.store import tables
from hookcli.store.places import names
from hookcli.store.places.folders import opened
from hookcli.store.run_files import RunFiles
from hookcli.store.tensors import write_index, write_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from hookcli.config import PictureFormat, RunConfig
    from hookcli.images.read import ImageFile, ImageSource
    from hookcli.plan.prepare import PreparedModel, PreparedRun
    from hookcli.records.calls import LayerInfo
    from hookcli.records.pictures import HeatPicture
    from hookcli.records.report import ReportDocument
    from hookcli.run.diagnose import Diagnosis
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import RunTotals

_THREADS = min(4, os.cpu_count() or 1)


def close_run(
    folder: RunFolder, prepared: PreparedRun, totals: RunTotals, *, is_resumed: bool
) -> RunResult:
    """Diagnose the run and write the files that come at its end, the manifest last.

    Raises:
        RequestError: an edit changed nothing.
        NoImageError: no image could be used; the list of skipped images is written.
        OutputError: a file cannot be written.
    """
    model, config = prepared.model, prepared.settings.config
    if totals.images and not is_resumed:  # the edits that earlier chunks made are unknown
        model.edits.check_used()
    if config.save_weights is not None:
        write_weights(config.save_weights, model.pruning.make_permanent(model.loaded.module))
    rows, written = write_tables(folder, model, totals)
    require_image(totals.images, [*model.skipped, *totals.skipped])
    diagnosis = diagnose(model, prepared.settings, prepared.scorer, totals)
    return write_folder(folder, prepared, totals, diagnosis, rows, written)


def write_folder(
    folder: RunFolder,
    prepared: PreparedRun,
    totals: RunTotals,
    diagnosis: Diagnosis,
    rows: tuple[LayerRow, ...],
    written: list[str],
) -> RunResult:
    """Write the pictures that wait for the findings, the top images, the page and the manifest.

    Args:
        folder: the run folder.
        prepared: the prepared run.
        totals: the totals of all its images.
        diagnosis: the findings.
        rows: the rows of ``layers.csv``.
        written: the names of the files that ``write_tables`` wrote.
    """
    model, settings, config = prepared.model, prepared.settings, prepared.settings.config
    keys = [source.key for source in model.sources]
    best = choose_best(keys, totals, MOST_CHANNELS, config.grids.channels)
    with ThreadPoolExecutor(1) as thread:  # the table is rendered while pictures are decoded
        top_rows = thread.submit(render_top_rows, model.sources, totals.top)
        if not settings.shows_all:
            shown = name_shown(totals.images, diagnosis.findings, best)
            written += _show_some(folder, model, totals, shown)
    versions = describe_versions(model, settings)
    facts = assemble_facts(folder.request, versions, model.skipped, totals, diagnosis)
    attention = tuple(tally.means() for tally in totals.attention.values())
    if config.attention is not None:
        table = tables.render_csv(AttentionRow, attention)
        written.append(folder.write(names.ATTENTION_TABLE, table.encode()))
    if totals.top.values:
        written.append(folder.write(names.TOP_IMAGES, top_rows.result()))
    ranked = rank_images(keys, totals)
    document: ReportDocument = tables.plain(
        assemble_document(facts, totals, rows, best, ranked, settings.style)
    )
    if config.backward is not None:
        written += _write_flow(folder, document, config)
    written += _write_page(folder, document)
    if config.overview:
        written += _write_overview(folder, document, config.grids.format)
    shards = [file for file in totals.files if names.is_shard(file)]
    if shards:
        channels = saved_channels(rows, config.tensors.save)
        with opened(folder.path) as inside:
            written.append(write_index(folder.write, inside.read_part, shards, channels))
    files = (*totals.files, *written)
    folder.complete(facts, files)
    fail_on, findings = config.findings.fail_on, diagnosis.findings
    return RunResult(
        model=model.loaded.info,
        images=tuple(totals.images),
        skipped=(*model.skipped, *totals.skipped),
        rows=rows,
        uncalled=diagnosis.uncalled,
        layers=len(model.layers),
        findings=findings,
        grids=tuple(totals.grids),
        attention=attention,
        undrawn=_list_undrawn(prepared.cams, totals.heats),
        failed=tuple(rule for rule in fail_on if any(f.rule == rule for f in findings)),
        out_dir=str(folder.path),
        files=(names.REQUEST, *files, names.MANIFEST),
    )


def _list_undrawn(cams: Sequence[LayerInfo], heats: Sequence[HeatPicture]) -> tuple[str, ...]:
    """Return the labels of the layers without a Grad-CAM."""
    cam_ids = [heat.call_id for heat in heats if heat.kind == "cam"]
    drawn = {re.sub(r"(#\d+)?(\[[^\]]*\])?$", "", call_id) for call_id in cam_ids}
    return tuple(layer.label for layer in cams if layer.label not in drawn)


def _write_page(folder: RunFolder, document: ReportDocument) -> list[str]:
    """Write ``report.json`` and ``report.html``, and return their names."""
    from hookcli.render.report.page import render_report

    return [
        folder.write(names.DOCUMENT, tables.encode_json(document)),
        folder.write(names.PAGE, render_report(document).encode()),
    ]


def _write_overview(folder: RunFolder, document: ReportDocument, form: PictureFormat) -> list[str]:
    """Write ``overview.png``, in another format too if one is asked for, and return the names.

    Raises:
        OutputError: a picture that the run has written is gone.
    """
    try:
        find_file = RunFiles(folder.path).file
        return _write_chart(
            folder, names.OVERVIEW, form, partial(draw_overview, document, find_file)
        )
    except OSError as error:
        raise OutputError(
            f"cannot draw the overview: a picture of the run is gone ({error.strerror or error})",
            "run the same command again",
        ) from error


def _write_flow(folder: RunFolder, document: ReportDocument, config: RunConfig) -> list[str]:
    """Write ``gradient_flow.png``, in another format too if one is asked for; return the names."""
    from hookcli.render.charts.flow_png import draw_flow

    info, score, images = document.model, config.backward, document.images
    assert score is not None  # noqa: S101
    of = for_page(images[0].key) + and_more(len(images) - 1)
    heading = [
        f"{for_page(info.name)}   gradient flow   {of}",
        f"{score.score} of {score.target}; weights: {info.weights}",
    ]
    draw = partial(draw_flow, document.layers, heading)
    return _write_chart(folder, names.GRADIENT_FLOW, config.grids.format, draw)


def _write_chart(
    folder: RunFolder,
    file: str,
    form: PictureFormat,
    draw: Callable[[PictureFormat], bytes],
) -> list[str]:
    """Write a chart as PNG, and in another format if one is asked for; return the names."""
    forms: dict[PictureFormat, None] = dict.fromkeys(("png", form))
    files = names.list_formats(file, form)
    return [folder.write(name, draw(each)) for name, each in zip(files, forms, strict=True)]


def _show_some(
    folder: RunFolder, model: PreparedModel, totals: RunTotals, wanted: set[str]
) -> list[str]:
    """Write what the network saw of the images that the page shows, and return the names.

    This is for a run over so many images that the page does not show all of them.
    """

    def show(source: ImageSource | ImageFile) -> str | None:
        ready = prepare_image(model.fitter, source)
        if ready.pixels is None or ready.state.sha256 != totals.images[places[source.key]].sha256:
            return None  # the file has changed since
        return folder.write(names.seen_file(source.key), model.loaded.show(ready.pixels))

    places = {image.key: index for index, image in enumerate(totals.images) if image.key in wanted}
    sources = [source for source in model.sources if source.key in places]
    folder.claim([names.seen_file(source.key) for source in sources])
    written = []
    with ThreadPoolExecutor(_THREADS) as threads:
        for source, name in zip(sources, threads.map(show, sources), strict=True):
            if name is not None:
                written.append(name)
                index = places[source.key]
                totals.images[index] = replace(totals.images[index], seen=name)
    return written


def write_tables(
    folder: RunFolder, model: PreparedModel, totals: RunTotals
) -> tuple[tuple[LayerRow, ...], list[str]]:
    """Write ``layers.csv`` and, if images were skipped, ``skipped.csv``.

    Returns:
        the rows of ``layers.csv``, and the names of the files.
    """
    module, sparsities = model.loaded.module, model.pruning.sparsities
    rows = tuple(_complete_row(module, row, sparsities) for row in totals.tally.rows())
    written = [folder.write(names.LAYERS, tables.render_csv(LayerRow, rows).encode())]
    skipped = [*model.skipped, *totals.skipped]
    if skipped:
        text = tables.render_csv(SkippedImage, skipped)
        written.append(folder.write(names.SKIPPED, text.encode()))
    return rows, written


def _complete_row(model: nn.Module, row: LayerRow, sparsities: dict[str, float]) -> LayerRow:
    """Return a row with the figures that need the model's weights: the ratio and the sparsity."""
    if row.side == "param" and row.norm is not None:
        name = ".".join(filter(None, (row.module_path, row.output_key)))
        try:
            weight = float(attrgetter(name)(model).detach().double().norm())
        except AttributeError:  # the model removed the parameter while it ran
            weight = 0.0
        row = replace(row, ratio=row.norm / weight if weight else None)
    return replace(row, sparsity=sparsities.get(row.module_path))
