"""The diagnosis of a run: layers that did not run, findings, and the module that made a NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.images.prepare import prepare_image
from hookcli.records.calls import Uncalled
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.passes.runner import Runner
    from hookcli.plan.prepared import PreparedRun
    from hookcli.records.runs import Finding
    from hookcli.summary.chunks import Chunk

_LATE = "it was not observed: a later image calls it, but the first one does not"


def diagnose(
    prepared: PreparedRun, totals: Chunk
) -> tuple[tuple[Uncalled, ...], tuple[Finding, ...]]:
    """Return the chosen layers without a record, and all findings, the most serious first."""
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
        files={image.key: image.file for image in totals.images},
        intensities={
            image.key: image.intensities for image in totals.images if image.intensities is not None
        },
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
    for layer in runner.find_late(totals.called):
        yield Uncalled(layer, _LATE)


def _find_nan_origins(prepared: PreparedRun, totals: Chunk) -> dict[str, str]:
    """Run the first image with a NaN or Inf again, and say where it came from, if that is known."""
    # A layer that was not chosen may make a NaN in any image, so ``--fail-on`` tries every image,
    # unless the run has several chunks.
    model, settings = prepared.model, prepared.settings
    producers: dict[str, str] = {}
    fail_on = settings.config.findings.fail_on
    asked = {name for name in ("NaN", "Inf") if name.lower() in fail_on}
    for source in model.sources:
        seen = {kind for kind, image in totals.broken.items() if image == source.key}
        wanted = (seen if settings.is_long else asked | seen) - producers.keys()
        image = prepare_image(model.fitter, source) if wanted else None
        if image is not None and image.pixels is not None:
            pixels = model.runner.place(image.pixels.unsqueeze(0))
            made = model.runner.find_nan_origin(pixels, totals.edits.made, prepared.scorer)
            producers |= {kind: made[kind] for kind in wanted & made.keys()}
    return producers
