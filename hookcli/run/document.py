"""The facts of ``run.json`` and ``manifest.json``, and the document that the page shows."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from hookcli.documents import to_fields
from hookcli.models.zoo.own_code import hash_code
from hookcli.records.command import to_command
from hookcli.records.report import FinishedRun, ReportDocument, RequestFile
from hookcli.render.draw.canvas import colormap_of, list_stops
from hookcli.run.environment import list_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.config import GridStyle
    from hookcli.plan.prepare import PreparedModel, RunSettings
    from hookcli.records.images import SkippedImage
    from hookcli.records.report import RankedImages, TopChannel
    from hookcli.records.rows import LayerRow
    from hookcli.run.diagnose import Diagnosis
    from hookcli.summary.chunks import RunTotals


def describe_request(model: PreparedModel, settings: RunSettings) -> RequestFile:
    """Return the request, its model, and what both depend on, as ``run.json`` holds them."""
    config = settings.config
    score = "" if config.backward is None else config.backward.score
    return RequestFile(
        hookcli=metadata.version("hookcli"),
        command=to_command(config),
        versions={**describe_versions(model, settings)},
        code=hash_code(model.loaded.module, [config.run.model.name, score]),
        model=model.loaded.info,
        layers=tuple(layer.label for layer in model.layers),
    )


def describe_versions(model: PreparedModel, settings: RunSettings) -> dict[str, str]:
    """Return the versions and settings of this process on which the figures of a run depend."""
    return list_versions(
        model.loaded.module,
        model.loaded.info.device,
        channels_last=settings.channels_last,
        uses_operations=model.uses_operations or settings.config.attention is not None,
    )


def assemble_facts(
    request: RequestFile,
    versions: Mapping[str, str],
    skipped: Sequence[SkippedImage],
    totals: RunTotals,
    diagnosis: Diagnosis,
) -> FinishedRun:
    """Return the facts of a run that the manifest holds."""
    return FinishedRun(
        **to_fields(replace(request, versions={**versions})),
        uncalled=tuple(layer.row() for layer in diagnosis.uncalled),
        images=tuple(totals.images),
        skipped=(*skipped, *totals.skipped),
        findings=diagnosis.findings,
        halved_batches=totals.halved,
    )


def assemble_document(
    facts: FinishedRun,
    totals: RunTotals,
    rows: tuple[LayerRow, ...],
    top_images: dict[str, tuple[TopChannel, ...]],
    ranked_images: dict[str, RankedImages],
    style: GridStyle,
) -> ReportDocument:
    """Return what ``report.json`` holds: the facts of the manifest, and more for the page."""
    return ReportDocument(
        **to_fields(facts) | {"layers": rows},
        histograms={call: tally.histogram for call, tally in totals.tally.calls.items()},
        grids=tuple(totals.grids),
        heats=tuple(totals.heats),
        thumbnails=tuple(totals.thumbnails),
        attention=tuple(tally.means() for tally in totals.attention.values()),
        attention_maps=tuple(totals.attention_maps),
        focus=totals.focus,
        written=totals.written,
        top_images=top_images,
        ranked_images=ranked_images,
        colours=tuple(list_stops(colormap_of(style))),
    )
