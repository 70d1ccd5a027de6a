"""Assemble the content of ``run.json``, ``manifest.json`` and ``report.json``."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from hookcli.outside.documents import to_fields
from hookcli.records.command import list_options, repeatable, to_command
from hookcli.records.report import FinishedRun, ReportDocument, RequestFile
from hookcli.render.draw.canvas import colormap_of, list_stops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.config import GridStyle
    from hookcli.plan.prepared import PreparedModel, RunSettings
    from hookcli.records.images import SkippedImage
    from hookcli.run.diagnose import Diagnosis
    from hookcli.summary.chunks import Chunk


def describe_request(model: PreparedModel, settings: RunSettings) -> RequestFile:
    """Return the content of ``run.json``: the command, the model, the layers, code and versions."""
    config = settings.config
    score = "" if config.backward is None else config.backward.score
    return RequestFile(
        hookcli=metadata.version("hookcli"),
        command=repeatable(to_command(config)),
        options=list_options(config),
        versions=model.runner.versions(),
        code=model.loaded.hash_code(score),
        model=model.loaded.info,
        layers=tuple(layer.label for layer in model.runner.layers),
    )


def assemble_facts(
    request: RequestFile,
    versions: Mapping[str, str],
    skipped: Sequence[SkippedImage],
    totals: Chunk,
    diagnosis: Diagnosis,
) -> FinishedRun:
    """Return the content of the manifest, without the list of files.

    ``request`` is the content of ``run.json``, whose versions ``versions`` replaces. ``skipped``
    are the images that were skipped before the run.
    """
    return FinishedRun(
        **to_fields(replace(request, versions={**versions})),
        uncalled=tuple(layer.row() for layer in diagnosis.uncalled),
        images=tuple(totals.images),
        skipped=(*skipped, *totals.skipped),
        findings=diagnosis.findings,
        halved_batches=totals.halved,
    )


def assemble_document(
    facts: FinishedRun, shown: Mapping[str, Any], style: GridStyle
) -> ReportDocument:
    """Return the content of ``report.json``, which the page shows.

    ``shown`` has the fields that the products of the run contribute; the page has the colours of
    ``style``.
    """
    fields = {**to_fields(facts), "focus": None, **shown}
    return ReportDocument(**fields, colours=tuple(list_stops(colormap_of(style))))
