"""End a run: make the findings, and write the tables, the page and the manifest."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hookcli.images.fit import require_image
from hookcli.outside import json_text, tables
from hookcli.plan.prepared import require_eager
from hookcli.products.heats import explain_heatless
from hookcli.products.product import RunEnd
from hookcli.records.images import SkippedImage
from hookcli.records.rows import LayerRow
from hookcli.run.diagnose import diagnose
from hookcli.run.document import assemble_document, assemble_facts
from hookcli.run.result import RunResult
from hookcli.store.places import names
from hookcli.store.tensors import write_weights
from hookcli.summary.tally import list_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.plan.prepared import PreparedModel, PreparedRun
    from hookcli.products.product import Product
    from hookcli.records.calls import LayerInfo
    from hookcli.records.pictures import HeatPicture
    from hookcli.records.report import ReportDocument
    from hookcli.store.folder import RunFolder
    from hookcli.summary.chunks import Chunk
    from hookcli.summary.top_images import TopTally


def close_run(
    folder: RunFolder,
    prepared: PreparedRun,
    products: Sequence[Product],
    totals: Chunk,
    top: TopTally,
) -> RunResult:
    """Diagnose the run, and write its last files; the manifest comes last."""
    model, config = prepared.model, prepared.settings.config
    if totals.images:
        model.runner.edits.check_used(totals.edits.used)
    if config.save_weights is not None:
        eager = require_eager(model, "`save_weights`")
        write_weights(config.save_weights, eager.runner.list_weights())
    rows, written = write_tables(folder, model, totals)
    require_image(totals.images, [*model.skipped, *totals.skipped])
    uncalled, findings = diagnose(prepared, totals)
    end = RunEnd(
        folder=folder,
        loaded=model.loaded,
        fitter=model.fitter,
        sources=model.sources,
        totals=totals,
        top=top,
        rows=rows,
        uncalled=uncalled,
        findings=findings,
        focus=prepared.focus,
    )
    with ThreadPoolExecutor() as threads:  # one product decodes pictures, another renders a table
        for files in threads.map(lambda product: product.close(end), products):
            written += files
    facts = assemble_facts(prepared, end)
    shown = {name: value for each in products for name, value in each.describe(end).items()}
    whole = assemble_document(facts, shown, prepared.settings.style)
    document: ReportDocument = json_text.plain(whole)
    written += _write_page(folder, document)
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
        undrawn=(*_list_undrawn(prepared.cams, totals.heats), *explain_heatless(end, config)),
        failed=tuple(rule for rule in fail_on if rule in found),
        out_dir=str(folder.path),
        files=(names.REQUEST, *files, names.MANIFEST),
    )


def _list_undrawn(cams: Sequence[LayerInfo], heats: Sequence[HeatPicture]) -> tuple[str, ...]:
    cam_ids = [heat.call_id for heat in heats if heat.kind == "cam"]
    drawn = {re.sub(r"(#\d+)?(\[[^\]]*\])?$", "", call_id) for call_id in cam_ids}
    return tuple(layer.label for layer in cams if layer.label not in drawn)


def _write_page(folder: RunFolder, document: ReportDocument) -> list[str]:
    from hookcli.render.report.page import render_report

    return [
        folder.write(names.DOCUMENT, json_text.encode_json(document)),
        folder.write(names.PAGE, render_report(document).encode()),
    ]


def write_tables(
    folder: RunFolder, model: PreparedModel, totals: Chunk
) -> tuple[tuple[LayerRow, ...], list[str]]:
    """Write ``layers.csv`` and ``skipped.csv``; return the rows of the first, and the names."""
    rows = list_rows(totals.calls, model.runner.sparsities, model.runner.norm_of)
    written = [folder.write(names.LAYERS, tables.render_csv(LayerRow, rows).encode())]
    skipped = [*model.skipped, *totals.skipped]
    if skipped:
        text = tables.render_csv(SkippedImage, skipped)
        written.append(folder.write(names.SKIPPED, text.encode()))
    return rows, written
