"""The facts of ``run.json`` and ``manifest.json``, and the document that the page shows."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from hookcli.records.command import to_command
from hookcli.render.draw.canvas import colormap_of, list_stops
from hookcli.run.environment import list_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.config import GridStyle
    from hookcli.plan.prepare import PreparedModel, RunSettings
    from hookcli.records.images import SkippedImage
    from hookcli.run.diagnose import Diagnosis
    from hookcli.summary.chunks import Chunk


def describe_request(model: PreparedModel, settings: RunSettings) -> dict[str, object]:
    """Return the request, its model, and what both depend on, as ``run.json`` holds them."""
    config = settings.config
    score = "" if config.backward is None else config.backward.score
    return {
        "hookcli": metadata.version("hookcli"),
        "command": to_command(config),
        "versions": describe_versions(model, settings),
        "code": model.loaded.hash_code(score),
        "model": model.loaded.info,
        "layers": [layer.label for layer in model.layers],
    }


def describe_versions(model: PreparedModel, settings: RunSettings) -> dict[str, str]:
    """Return the versions and settings of this process on which the figures of a run depend."""
    return list_versions(
        model.loaded.module,
        model.loaded.info.device,
        channels_last=settings.channels_last,
        uses_operations=model.uses_operations or settings.config.attention is not None,
    )


def assemble_facts(
    request: Mapping[str, object],
    versions: Mapping[str, str],
    skipped: Sequence[SkippedImage],
    totals: Chunk,
    diagnosis: Diagnosis,
) -> dict[str, object]:
    """Return the facts of a run that the manifest holds."""
    return {
        **request,
        "versions": versions,
        "uncalled": [layer.row() for layer in diagnosis.uncalled],
        "images": totals.images,
        "skipped": [*skipped, *totals.skipped],
        "findings": diagnosis.findings,
        "halved_batches": totals.halved,
    }


def assemble_document(
    facts: Mapping[str, object],
    shown: Mapping[str, object],
    focus: Mapping[str, object] | None,
    style: GridStyle,
) -> dict[str, object]:
    """Return what ``report.json`` holds.

    Args:
        facts: the facts of the manifest.
        shown: what the products of the run give the page.
        focus: the box of ``--focus``; None without one.
        style: how feature maps are drawn.
    """
    return {
        **facts,
        "grids": [],
        **shown,
        "focus": focus,
        "colours": list_stops(colormap_of(style)),
    }
