"""The command ``hookcli probe``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from hookcli.cli.analysis import AnalysisOptions, FeaturePool, LayersOf, open_analysis
from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.cli.output.run import warn_of_damage
from hookcli.cli.run_or_model import RunOrModel
from hookcli.config import SaveStyle
from hookcli.errors import RequestError
from hookcli.outside.escape import reversible
from hookcli.outside.flags import Flag
from hookcli.outside.foreign import require_package
from hookcli.records.text import count
from hookcli.store.places.names import PAGE
from hookcli.verbs.outcome import Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hookcli.analysis.features import SavedCall
    from hookcli.analysis.probe import ProbeDocument, ProbeRow
    from hookcli.cli.analysis import Analysis
    from hookcli.config import Only, Theme
    from hookcli.reading.load import Run
    from hookcli.render.report.contact import Group

_TABLE, _CONFUSIONS, _PREDICTIONS = "probe.csv", "confusions.csv", "predictions.csv"
_CURVE, _MATRIX = "probe.png", "confusions.png"
_PIXELS = "pixels"
_CONFUSED = 5  # pairs of labels that the terminal shows
_DRAWN = 100  # labels in the picture of confusions


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Analysis: what the features and the labels are, and how the accuracy is measured.

    Attributes:
        control: The run must have the same images and layers.
    """

    labels: Annotated[
        str,
        Flag(
            "--labels folders|FILE.csv",
            "The folder of each photo, or a file with the columns image and label.",
        ),
    ]
    pool: FeaturePool = "mean"
    folds: Annotated[
        int, Flag("--folds N", "Parts into which the images are split.", at_least=2, at_most=100)
    ] = 5
    control: Annotated[
        str | None,
        Flag("--control RUN", "A run to compare with: the same network with random weights."),
    ] = None


@command
def probe(
    source: RunOrModel,
    style: ProbeRequest,
    output: AnalysisOptions,
    context: typer.Context,
    layers: LayersOf = (),
) -> int:
    """Find the layer that knows a label: logistic regression on the features of each layer.

    The accuracy is cross-validated. Controls: the pixels, and the layers of another run. Without
    --layers, hookcli probes the activations of a model.
    Needs scikit-learn: pip install 'hookcli[analysis]'

    Examples:
        hookcli probe resnet18 pets --labels folders
        hookcli probe hookcli-runs/new --labels labels.csv --control hookcli-runs/old
    """
    from hookcli.analysis.labels import Labels
    from hookcli.reading.load import load_run

    require_package("a probe needs", "sklearn", "scikit-learn", "analysis")
    labels = Labels.read(style.labels)
    source.use_storage()
    control = None if style.control is None else load_run(style.control)
    if control is not None:
        warn_of_damage(control.damage)
    save = SaveStyle("none" if style.pool == "class" else style.pool)
    only: Only | None = None if layers else "act"
    with open_analysis(source, style, output, context, save, only=only) as analysis:
        _probe(analysis, style, labels.of(analysis.runs[0]), control)
    return analysis.exit_code


def _probe(
    analysis: Analysis, style: ProbeRequest, labels: Mapping[str, str], control: Run | None
) -> None:
    from hookcli.analysis.labels import count_labels
    from hookcli.analysis.probe import (
        ClassRow,
        PredictionRow,
        ProbeDocument,
        check_labels,
        judge,
        list_confusions,
    )
    from hookcli.cli.output.progress import Bar as Progress

    (run,) = analysis.runs
    keys = [key for key in run.images if key in labels]
    known = [labels[key] for key in keys]
    check_labels(known, style.folds)
    calls = analysis.choose_calls(run, style.pool)
    controls, control_keys = _open_control(analysis, style, control, calls, keys)
    analysis.say_plan(
        f"{count(len(calls), 'layer')}, {count(len(keys), 'image')}, "
        f"{count(len(set(known)), 'label')}",
        4 * max(call.size for call in calls),
    )
    scores: dict[str, tuple[ProbeRow, NDArray[np.str_]]] = {}
    rows: list[ProbeRow] = []
    steps = len(calls) + len(controls) + 1
    bar = Progress(steps, "layers", is_shown=not analysis.output.quiet)
    with bar as progress:
        for call in calls:
            needed = analysis.source.forms or (call is calls[-1] and not scores)
            if score := _try_layer(call, keys, known, style, is_needed=bool(needed)):
                scores[call.call_id] = score
            progress.chunk_done(progress.done + 1, 0)
        rows += [row for row, _ in scores.values()]
        for call in controls:
            if call.call_id in scores:
                score = _try_layer(call, control_keys, known, style, is_needed=False)
                if score is None:
                    console.warn(
                        f"no control for {call.call_id}: there, it is the same for every image"
                    )
                rows += [replace(score[0], control="run")] if score else []
            progress.chunk_done(progress.done + 1, 0)
        pixels = _probe_pixels(analysis, style, keys, known)
        rows += [row for row, _ in pixels]
        progress.chunk_done(steps, 0)
    best, predicted = max(scores.values(), key=lambda score: score[0].accuracy)
    classes = count_labels(dict(zip(keys, known, strict=True)))
    predictions = [str(each) for each in predicted]
    chance = max(classes.values()) / len(keys)
    hits = [named == known for named in (predicted, *(each for _, each in pixels))]
    rows, verdict = judge(rows, chance, len(keys), hits)
    document = ProbeDocument(
        **analysis.common,
        classes=tuple(ClassRow(label, images) for label, images in classes.items()),
        chance=chance,
        unlabelled=len(run.images) - len(keys),
        best=best.layer,
        verdict=verdict,
        layers=tuple(rows),
        left_out=tuple(call.call_id for call in calls if call.call_id not in scores),
        confusions=tuple(list_confusions(known, predictions, classes)),
        predictions=tuple(map(PredictionRow, keys, known, predictions)),
    )
    _write(analysis, document)
    shown = [row for row in rows if row.control != "run"] if analysis.output.is_brief else rows
    analysis.print(_look(document), shown, document, _caption(analysis, document))


def _try_layer(
    call: SavedCall,
    keys: Sequence[str],
    labels: Sequence[str],
    style: ProbeRequest,
    *,
    is_needed: bool,
) -> tuple[ProbeRow, NDArray[np.str_]] | None:
    """Return a layer's row and the predicted labels; None if an unneeded layer says nothing."""
    from hookcli.analysis.features import EmptyLayerError
    from hookcli.analysis.probe import probe_layer

    try:
        return probe_layer(call, keys, labels, style.pool, style.folds)
    except EmptyLayerError:
        if is_needed:
            raise
        return None


def _open_control(
    analysis: Analysis,
    style: ProbeRequest,
    control: Run | None,
    calls: Sequence[SavedCall],
    keys: Sequence[str],
) -> tuple[tuple[SavedCall, ...], list[str]]:
    from hookcli.analysis.features import open_calls
    from hookcli.analysis.probe import match_control

    if control is None:
        return (), []
    found = {call.call_id: call for call in open_calls(control, pool=style.pool)}
    missing = [call.call_id for call in calls if call.call_id not in found]
    if missing:
        raise RequestError(
            f"the control {style.control!r} has no {missing[0]!r}",
            "save the same layers in both runs",
        )
    others = match_control(analysis.runs[0], control, keys)
    return tuple(found[call.call_id] for call in calls), others


def _probe_pixels(
    analysis: Analysis, style: ProbeRequest, keys: Sequence[str], labels: Sequence[str]
) -> list[tuple[ProbeRow, NDArray[np.str_]]]:
    """Return the pixels' row and predictions; nothing if they cannot be read or are alike."""
    from hookcli.analysis.features import EmptyLayerError
    from hookcli.analysis.probe import probe_features, read_pixels

    pixels, reason = read_pixels(analysis.runs[0], keys)
    if pixels is not None:
        try:
            score = probe_features(pixels, labels, style.folds)
            return [(score.row(_PIXELS, pixels.shape[1], "pixels"), score.predicted)]
        except EmptyLayerError as error:
            reason = error.message
    console.warn(f"no control of the pixels: {reason}")
    return []


def _look(document: ProbeDocument) -> Look[ProbeRow]:
    """Return how layers look; a layer of the control run is a column beside that of the run."""
    from hookcli.analysis.probe import ProbeRow

    controls = {row.layer: row for row in document.layers if row.control == "run"}
    columns = {
        "layer": lambda row: row.layer,
        "accuracy": lambda row: f"{row.accuracy:.1%}",
        "spread": lambda row: f"{row.spread:.1%}",
        "control": lambda row: (
            ""
            if row.control or row.layer not in controls
            else f"{controls[row.layer].accuracy:.1%}"
        ),
        "p": lambda row: "" if row.p_value is None else f"{row.p_value:.2g}",
        "features": lambda row: f"{row.features:,}",
    }
    if not controls:
        del columns["control"]
    return Look(
        kind=ProbeRow,
        columns=columns,
        words=("layer",),
        fold=("layer",),
        drop=("features", "spread"),
    )


def _caption(analysis: Analysis, document: ProbeDocument) -> Iterator[str]:
    best = next(row for row in document.layers if row.layer == document.best)
    yield f"the best layer: {best.layer}, {best.accuracy:.1%} (spread over folds {best.spread:.1%})"
    yield f"chance, the most common of {len(document.classes)} labels: {document.chance:.1%}"
    wrong = [row for row in document.confusions if row.label != row.predicted]
    for row in sorted(wrong, key=lambda row: -row.images)[:_CONFUSED]:
        yield f"  {count(row.images, 'image')} of {row.label} taken for {row.predicted}"
    if document.left_out:
        yield f"left out, since they say nothing of the images: {', '.join(document.left_out)}"
    if document.unlabelled:
        yield f"left out: {count(document.unlabelled, 'image')} without a label"
    yield f"every image: {analysis.place / _PREDICTIONS}"
    yield (
        f"verdict: {document.verdict} (paired t-test over folds, corrected for the images that "
        "they share and for the number of layers)"
    )


def _write(analysis: Analysis, document: ProbeDocument) -> None:
    from hookcli.analysis.pictures import copy_pictures
    from hookcli.analysis.probe import ConfusionRow, PredictionRow, ProbeRow
    from hookcli.outside.tables import render_csv
    from hookcli.render.report.analysis_page import arrange_images, render_analysis

    title = f"Which layer of {analysis.facts[0].model.name} knows the label"
    theme = analysis.output.theme
    wrong = frozenset(row.image for row in document.predictions if row.label != row.predicted)
    with analysis.folder() as folder:
        folder.write(_TABLE, render_csv(ProbeRow, document.layers).encode())
        folder.write(_CONFUSIONS, render_csv(ConfusionRow, document.confusions).encode())
        folder.write(_PREDICTIONS, render_csv(PredictionRow, document.predictions).encode())
        folder.write(_CURVE, _draw_curve(document, title, theme))
        folder.write(_MATRIX, _draw_confusions(document, theme))
        pictures = copy_pictures(analysis.runs[0], folder, first=wrong)
        said = {row.image: row for row in document.predictions}
        known = [said.get(image.key) for image in pictures.images]
        values = {
            "contact": arrange_images(
                pictures, _list_groups(document, wrong), {}, analysis.facts[0].images
            ),
            "data": {
                "seen": [quote(image.seen) for image in pictures.images],
                "said": [row and [row.label, row.predicted] for row in known],
            },
            "curve": _CURVE,
            "matrix": _MATRIX,
            "tables": (_TABLE, _CONFUSIONS, _PREDICTIONS),
            "wrong": len(wrong),
        }
        folder.write(PAGE, render_analysis("probe", title, document, values).encode())


def _list_groups(document: ProbeDocument, wrong: frozenset[str]) -> list[Group]:
    from hookcli.render.report.contact import Group

    total = len(document.predictions)
    groups = [Group(f"predicted wrongly ({len(wrong)})", "predicted wrongly", wrong, total)]
    for label in (row.label for row in document.classes):
        keys = frozenset(row.image for row in document.predictions if row.label == label)
        name = reversible(label)
        groups.append(Group(f"{name} ({len(keys)})", name, keys, total, is_mark=False))
    return [group for group in groups if group.images]


def _draw_curve(document: ProbeDocument, title: str, theme: Theme) -> bytes:
    from hookcli.analysis.probe import PIXELS
    from hookcli.render.charts.curves_png import Curve, draw_curves

    layers = [row for row in document.layers if not row.control]
    controls = {row.layer: row for row in document.layers if row.control == "run"}
    found = [controls.get(row.layer) for row in layers]
    shares = [(row.accuracy, row.spread) if row else (math.nan, math.nan) for row in found]
    curves = [Curve("this run", [row.accuracy for row in layers], [row.spread for row in layers])]
    if controls:
        curves.append(Curve("the control run", *zip(*shares, strict=True)))
    pixels = [
        (f"the pixels ({PIXELS} x {PIXELS})", row.accuracy)
        for row in document.layers
        if row.control == "pixels"
    ]
    levels = [*pixels, ("chance", document.chance)]
    images = count(len(document.predictions), "image")
    labels = count(len(document.classes), "label")
    heading = [title, f"accuracy over folds of {images} with {labels}; bands: spread over folds"]
    return draw_curves([row.layer for row in layers], curves, levels, heading, theme)


def _draw_confusions(document: ProbeDocument, theme: Theme) -> bytes:
    import numpy as np

    from hookcli.render.charts.matrix_png import draw_matrix

    totals = {row.label: row.images for row in document.classes}
    names = list(totals)[:_DRAWN]
    at = {name: place for place, name in enumerate(names)}
    shares = np.zeros((len(names), len(names)))
    for row in document.confusions:
        if row.label in at and row.predicted in at:
            share = row.images / totals[row.label]
            shares[at[row.label], at[row.predicted]] = share
    more = "" if len(names) == len(document.classes) else f", the {_DRAWN} most common labels"
    heading = [f"What {document.best} predicts", f"rows: labels; columns: predictions{more}"]
    shown = [reversible(name) for name in names]
    return draw_matrix(shares, (shown, shown), heading, theme)[0]
