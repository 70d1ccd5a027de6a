"""The diagnosis of a run: layers that did not run, findings, and which module made a NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import explain_uncalled
from hookcli.hooks.operations import FoundOperation, depth_of, split_path
from hookcli.images.prepare import prepare_image
from hookcli.passes.call import to_batch
from hookcli.passes.nan_origin import find_nan_origin
from hookcli.records.calls import OPERATION, LayerInfo, Uncalled
from hookcli.summary.evidence import Evidence
from hookcli.summary.findings import list_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from hookcli.models.scores import ScoreTensor
    from hookcli.plan.prepared import PreparedModel, RunSettings
    from hookcli.records.runs import Finding
    from hookcli.summary.chunks import Chunk

_LATE = "it was not watched: a later image calls it, and the first one does not"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the figures of a run mean.

    Attributes:
        uncalled: the chosen layers without a record, with the reason: also the operations that
            the first image does not call, and a later one does.
        findings: the findings, the gravest first.
    """

    uncalled: tuple[Uncalled, ...]
    findings: tuple[Finding, ...]


def diagnose(
    model: PreparedModel,
    settings: RunSettings,
    scorer: Callable[..., ScoreTensor] | None,
    totals: Chunk,
) -> Diagnosis:
    """Find the layers that did not run, and all findings.

    The model may run again, to find out which module made a NaN.

    Args:
        model: the model and the images.
        settings: the settings of the run.
        scorer: computes the score at which a backward starts; None without a backward.
        totals: the totals of all images.
    """
    uncalled = (
        *_find_uncalled(model.loaded.module, model.layers, totals),
        *_find_unwatched(model, totals.called),
    )
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
        producers=_find_nan_origins(model, settings, scorer, totals),
        written=totals.written,
        files={image.key: image.file for image in totals.images},
    )
    return Diagnosis(uncalled, list_findings(evidence, dict(settings.config.findings.rules)))


def _find_uncalled(
    model: nn.Module, layers: Sequence[LayerInfo], totals: Chunk
) -> tuple[Uncalled, ...]:
    recorded = {
        tally.call.layer.module_path
        for tally in totals.calls.values()
        if tally.call.side != "param"
    }
    return tuple(
        Uncalled(layer, _explain(model, layer, totals.called))
        for layer in layers
        if layer.module_path not in recorded
    )


def _find_unwatched(model: PreparedModel, called: set[str]) -> Iterator[Uncalled]:
    """Yield the operations that would have been chosen if the first image had called them."""
    known = {each.layer.module_path for each in model.operations}
    operations = list(model.operations)
    last = max((moment for each in operations for moment in each.moments), default=0)
    for path in sorted(called - known):
        if OPERATION in path:
            module_path, name = split_path(path)
            layer = LayerInfo(path, name, depth_of(module_path))
            operations.append(FoundOperation(layer, (last := last + 1,), computes=True))
    if len(operations) > len(model.operations):
        request = model.request
        chosen = select_layers(model.loaded.module, request.layers, request.exclude, operations)
        yield from (
            Uncalled(layer, _LATE)
            for layer in chosen
            if layer.is_operation and layer.module_path not in known
        )


def _explain(model: nn.Module, layer: LayerInfo, called: set[str]) -> str:
    if layer.module_path in called:
        return "it ran, but took and returned no tensor"
    return explain_uncalled(model, layer)


def _find_nan_origins(
    model: PreparedModel,
    settings: RunSettings,
    scorer: Callable[..., ScoreTensor] | None,
    totals: Chunk,
) -> dict[str, str]:
    """Return sentences that name what made ``NaN`` and ``Inf`` in a run, by these two words.

    The first image that holds one runs again. With ``--fail-on`` every image of a short run does,
    since a NaN may be made in a layer that was not chosen.
    """
    loaded = model.loaded
    producers: dict[str, str] = {}
    fail_on = settings.config.findings.fail_on
    asked = {name for name in ("NaN", "Inf") if name.lower() in fail_on}
    for source in model.sources:
        seen = {kind for kind, image in totals.broken.items() if image == source.key}
        wanted = (seen if settings.is_long else asked | seen) - producers.keys()
        image = prepare_image(model.fitter, source) if wanted else None
        if image is not None and image.pixels is not None:
            pixels = to_batch(loaded, image.pixels)
            made = find_nan_origin(
                loaded.module, loaded.feed, pixels, model.edits, totals.edits.made, scorer
            )
            producers |= {kind: made[kind] for kind in wanted & made.keys()}
    return producers
