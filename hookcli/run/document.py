"""Assemble the content of ``run.json``, ``manifest.json`` and ``report.json``."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from hookcli.outside.documents import to_fields
from hookcli.records.command import command_words, list_options, repeatable
from hookcli.records.report import FinishedRun, ReportDocument, RequestFile
from hookcli.render.draw.canvas import colormap_of, list_stops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookcli.config import GridStyle
    from hookcli.plan.prepared import PreparedRun
    from hookcli.products.product import RunEnd


def describe_request(prepared: PreparedRun) -> RequestFile:
    """Return the content of ``run.json``: the command, the model, the layers, code and versions."""
    model, config = prepared.model, prepared.settings.config
    score = "" if config.backward is None else config.backward.score
    return RequestFile(
        hookcli=metadata.version("hookcli"),
        command=repeatable(command_words(config.command, config)),
        options=list_options(config),
        versions=model.runner.versions(),
        code=model.loaded.hash_code(score),
        model=model.loaded.info,
        layers=tuple(layer.label for layer in model.runner.layers),
    )


def assemble_facts(prepared: PreparedRun, end: RunEnd) -> FinishedRun:
    """Return the content of the manifest, without the list of files."""
    model, totals = prepared.model, end.totals
    request = replace(end.folder.request, versions=model.runner.versions())
    return FinishedRun(
        **to_fields(request),
        uncalled=tuple(layer.row() for layer in end.uncalled),
        images=tuple(totals.images),
        skipped=(*model.skipped, *totals.skipped),
        findings=end.findings,
        halved_batches=totals.halved,
        features=prepared.features,
    )


def assemble_document(
    facts: FinishedRun, shown: Mapping[str, Any], style: GridStyle
) -> ReportDocument:
    """Return the content of ``report.json``, with the fields ``shown`` of the run's products."""
    fields = {**to_fields(facts), "focus": None, **shown}
    return ReportDocument(**fields, colours=tuple(list_stops(colormap_of(style))))
