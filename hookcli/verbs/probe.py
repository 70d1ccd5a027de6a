"""Define ``hookcli probe``, which predicts labels: its options, table, verdict and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from hookcli.outside.escape import reversible
from hookcli.outside.flags import Flag
from hookcli.outside.foreign import require_package
from hookcli.records.text import count
from hookcli.verbs.analysis import (
    Analysis,
    AnalysisOptions,
    AnalysisOutcome,
    FeaturePool,
    GivenLabels,
    LayersOf,
    group_by_label,
    labels_flag,
    open_analysis,
)
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import TABLES, verb
from hookcli.verbs.messages import warn_of_damage
from hookcli.verbs.outcome import Look, Table
from hookcli.verbs.runs import RunOrModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hookcli.analysis.probe import ProbeDocument, ProbeRow
    from hookcli.reading.load import Run
    from hookcli.render.draw.curves_png import Curve
    from hookcli.render.report.contact import Group

_TABLE, _CONFUSIONS, _PREDICTIONS = "probe.csv", "confusions.csv", "predictions.csv"
_CURVE, _MATRIX = "probe.png", "confusions.png"
_CONFUSED = 5  # pairs of labels that the terminal shows
_DRAWN = 100  # labels in the picture of confusions


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Analysis: options that choose the features, labels and control run of ``probe``."""

    labels: Annotated[
        GivenLabels,
        labels_flag("The folder of each photo, or a file with the columns image and label."),
    ]
    pool: FeaturePool = "mean"
    folds: Annotated[
        int, Flag("--folds N", "Parts into which the images are split.", at_least=2, at_most=100)
    ] = 5
    control: Annotated[
        str | None,
        Flag("--control RUN", "A run to compare with: the same network with random weights."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Probe(AnalysisOutcome["ProbeDocument"]):
    """The result of ``probe``: how well the features of each layer predict the labels.

    Attributes:
        result: the accuracy of each layer and of the controls (the pixels, and the layers of
            another run), the verdict, and what the best layer predicts.
    """

    @property
    def rows(self) -> Sequence[ProbeRow]:
        """One row per layer, in the order in which the layers ran; then the rows of controls."""
        return self.result.layers

    def table(self) -> Table[ProbeRow]:
        """Return a table: a row per layer, one for the pixels, and a column for a control run."""
        rows = [row for row in self.rows if row.control != "run"]
        caption = [*_list_lines(self.result, self.analysis), *self.analysis.list_weights()]
        return Table(look=_look(self.result), rows=rows, caption=caption)


@verb(*TABLES)
def probe(
    call: VerbCall,
    source: RunOrModel,
    style: ProbeRequest,
    output: AnalysisOptions,
    layers: LayersOf = (),
) -> Probe:
    """Find the layer that knows a label: logistic regression on the features of each layer.

    The accuracy is cross-validated. hookcli compares it with the accuracy of controls: the pixels,
    and the layers of another run. Without --layers, hookcli probes a model's activation layers.
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
        warn_of_damage(call, control.damage)
    how = (call, source, style, output, style.pool)
    with open_analysis(*how, only=None if layers else "act") as analysis:
        result = _probe(analysis, style, labels.of(analysis.runs[0]), control)
        return Probe(analysis=analysis, files=_write(analysis, result), result=result)


def _probe(
    analysis: Analysis, style: ProbeRequest, labels: Mapping[str, str], control: Run | None
) -> ProbeDocument:
    from hookcli.analysis import probe as steps
    from hookcli.analysis.labels import count_labels

    (run,) = analysis.runs
    keys = [key for key in run.images if key in labels]
    known = [labels[key] for key in keys]
    classes = count_labels(dict(zip(keys, known, strict=True)))
    steps.check_labels(known, style.folds)
    calls = analysis.choose_calls(run, style.pool)
    others, other_keys = steps.open_control(run, control, calls, keys, style.pool)
    what = (count(len(calls), "layer"), count(len(keys), "image"), count(len(classes), "label"))
    analysis.say_plan(", ".join(what))
    how = (known, style.pool, style.folds)
    with analysis.count(len(calls) + len(others), "layers") as progress:
        least = len(calls) if analysis.forms else 1
        scores = steps.probe_layers(calls, keys, *how, progress.step, least=least)
        others = [call for call in others if call.call_id in scores]
        control_scores = steps.probe_layers(others, other_keys, *how, progress.step, least=0)
        pixels, reason = steps.probe_pixels(run, keys, known, style.folds)
    for name in [call.call_id for call in others if call.call_id not in control_scores]:
        analysis.call.warn(f"no control for {name}: there, it is the same for every image")
    if reason:
        analysis.call.warn(f"no control of the pixels: {reason}")
    rows = [row for row, _ in scores.values()]
    rows += [replace(row, control="run") for row, _ in control_scores.values()]
    rows += [row for row, _ in pixels]
    best, predicted = max(scores.values(), key=lambda score: score[0].accuracy)
    chance = max(classes.values()) / len(keys)
    hits = [named == known for named in (predicted, *(each for _, each in pixels))]
    judged, verdict = steps.judge(rows, chance, len(keys), hits)
    predictions = [str(each) for each in predicted]
    return steps.ProbeDocument(
        **analysis.common,
        classes=tuple(steps.ClassRow(label, images) for label, images in classes.items()),
        chance=chance,
        unlabelled=len(run.images) - len(keys),
        best=best.layer,
        verdict=verdict,
        layers=tuple(judged),
        left_out=tuple(call.call_id for call in calls if call.call_id not in scores),
        confusions=tuple(steps.list_confusions(known, predictions, classes)),
        predictions=tuple(map(steps.PredictionRow, keys, known, predictions)),
    )


def _look(document: ProbeDocument) -> Look[ProbeRow]:
    from hookcli.analysis.probe import ProbeRow

    controls = {r.layer: f"{r.accuracy:.1%}" for r in document.layers if r.control == "run"}
    columns = {
        "layer": lambda row: row.layer,
        "accuracy": lambda row: f"{row.accuracy:.1%}",
        "std": lambda row: f"{row.spread:.1%}",
        "control": lambda row: "" if row.control else controls.get(row.layer, ""),
        "p": lambda row: "" if row.p_value is None else f"{row.p_value:.2g}",
        "features": lambda row: f"{row.features:,}",
    }
    if not controls:
        del columns["control"]
    words, drop = ("layer",), ("features", "std")
    return Look(kind=ProbeRow, columns=columns, words=words, fold=words, drop=drop)


def _list_lines(document: ProbeDocument, analysis: Analysis) -> Iterator[str]:
    best = next(row for row in document.layers if row.layer == document.best)
    like = sum(row.accuracy == best.accuracy and not row.control for row in document.layers) - 1
    also = f", as {count(like, 'other layer')}" if like else ""
    std = f"(std over folds {best.spread:.1%})"
    yield f"the best layer: {best.layer}, {best.accuracy:.1%}{also} {std}"
    yield f"chance, the most common of {len(document.classes)} labels: {document.chance:.1%}"
    wrong = [row for row in document.confusions if row.label != row.predicted]
    for row in sorted(wrong, key=lambda row: -row.images)[:_CONFUSED]:
        yield f"  {count(row.images, 'image')} of {row.label} taken for {row.predicted}"
    if document.left_out:
        yield f"left out, since they say nothing of the images: {', '.join(document.left_out)}"
    if document.unlabelled:
        yield f"left out: {count(document.unlabelled, 'image')} without a label"
    yield f"every image: {analysis.where(_PREDICTIONS)}"
    yield (
        f"verdict: {document.verdict} (paired t-test over folds, corrected for the images that "
        "they share and for the number of layers)"
    )


def _write(analysis: Analysis, document: ProbeDocument) -> Mapping[str, Path | bytes]:
    from hookcli.analysis.images import name_images
    from hookcli.analysis.pictures import copy_pictures
    from hookcli.analysis.probe import ConfusionRow, PredictionRow, ProbeRow
    from hookcli.outside.tables import render_csv
    from hookcli.render.draw.curves_png import draw_curves
    from hookcli.render.draw.matrix_png import draw_matrix
    from hookcli.render.report.analysis_page import arrange_images

    title = f"Which layer of {analysis.facts[0].model.name} knows the label"
    theme = analysis.output.theme
    wrong = frozenset(row.image for row in document.predictions if row.label != row.predicted)
    said = {row.image: row for row in document.predictions}
    with analysis.folder() as folder:
        folder.write(_TABLE, render_csv(ProbeRow, document.layers).encode())
        folder.write(_CONFUSIONS, render_csv(ConfusionRow, document.confusions).encode())
        named = name_images(analysis.runs[0])
        predictions = [replace(row, image=named[row.image]) for row in document.predictions]
        folder.write(_PREDICTIONS, render_csv(PredictionRow, predictions).encode())
        layers, curves, levels = _list_curves(document)
        images, labels = count(len(said), "image"), count(len(document.classes), "label")
        what = f"accuracy over folds of {images} with {labels}; bands: std over folds"
        folder.write(_CURVE, draw_curves(layers, curves, levels, [title, what], theme))
        totals = {row.label: row.images for row in document.classes}
        found = {(row.label, row.predicted): row.images for row in document.confusions}
        drawn = list(totals)[:_DRAWN]
        shares = [[found.get((one, two), 0) / totals[one] for two in drawn] for one in drawn]
        names = [reversible(name) for name in drawn]
        more = "" if len(names) == len(document.classes) else f", the {_DRAWN} most common labels"
        heading = [f"What {document.best} predicts", f"rows: labels; columns: predictions{more}"]
        folder.write(_MATRIX, draw_matrix(shares, (names, names), heading, theme))
        pictures = copy_pictures(analysis.runs[0], folder, first=wrong)
        known = [said.get(image.key) for image in pictures.images]
        values = {
            "contact": arrange_images(
                pictures, _list_groups(document, wrong), {}, analysis.facts[0].images
            ),
            "data": {
                "seen": [quote(image.seen) for image in pictures.images],
                "said": [row and [row.label, row.predicted] for row in known],
                "matrix": {"rows": names, "columns": names, "values": shares},
                "curves": {"layers": layers, "curves": curves, "levels": levels},
            },
            "tables": (_TABLE, _CONFUSIONS, _PREDICTIONS, _CURVE, _MATRIX),
            "wrong": len(wrong),
        }
        analysis.write_page(folder, title, document, values)
    return folder.files


def _list_groups(document: ProbeDocument, wrong: frozenset[str]) -> list[Group]:
    from hookcli.render.report.contact import Group

    total = len(document.predictions)
    labelled: dict[str, list[str]] = {row.label: [] for row in document.classes}
    for row in document.predictions:
        labelled[row.label].append(row.image)
    marked = Group(f"predicted wrongly ({len(wrong)})", "predicted wrongly", wrong, total)
    return [each for each in (marked, *group_by_label(labelled, total)) if each.images]


def _list_curves(document: ProbeDocument) -> tuple[list[str], list[Curve], list[tuple[str, float]]]:
    from hookcli.analysis.probe import PIXELS
    from hookcli.render.draw.curves_png import Curve

    layers = [row for row in document.layers if not row.control]
    controls = {row.layer: row for row in document.layers if row.control == "run"}
    found = [controls.get(row.layer) for row in layers]
    shares = [(row.accuracy, row.spread) if row else (None, None) for row in found]
    curves = [Curve("this run", [row.accuracy for row in layers], [row.spread for row in layers])]
    if controls:
        curves.append(Curve("the control run", *zip(*shares, strict=True)))
    pixels = [
        (f"the pixels ({PIXELS} x {PIXELS})", row.accuracy)
        for row in document.layers
        if row.control == "pixels"
    ]
    return [row.layer for row in layers], curves, [*pixels, ("chance", document.chance)]
