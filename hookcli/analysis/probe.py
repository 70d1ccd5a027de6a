"""Predict labels from each layer by logistic regression, and compare with chance and controls."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from PIL import Image

from hookcli.analysis.features import EmptyLayerError, check_finite, open_calls
from hookcli.analysis.images import list_contents, list_files, match_contents
from hookcli.errors import HookcliError, RequestError
from hookcli.images.read import ImageSource
from hookcli.images.style import UndecodableError
from hookcli.outside.documents import AtLeastOne, Rows, Share, Whole
from hookcli.outside.foreign import require_package
from hookcli.records.analysis import AnalysisDocument
from hookcli.records.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features, SavedCall
    from hookcli.reading.load import Run
    from hookcli.records.analysis import Pool

PIXELS = 16  # the side to which photos are shrunk for the control
_STEPS = 1000  # of the regression, at most
_COLUMNS = 64  # that are standardized at once
_CLEAR = 0.05  # the largest p-value of a layer that is clearly above the controls

Control: TypeAlias = Literal["", "pixels", "run"]
Probed: TypeAlias = "tuple[ProbeRow, NDArray[np.str_]]"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A label, and how many images have it.

    Attributes:
        label: the label.
        images: the number of images.
    """

    label: str
    images: AtLeastOne


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """How well a classifier on the features of one layer predicts the labels.

    Attributes:
        layer: the id of the layer's call; ``pixels`` for the pixels of the photos.
        control: ``pixels`` or ``run`` (a layer of the control run); empty for a layer of the run.
        accuracy: the share of images whose label was predicted, averaged over the folds.
        spread: the standard deviation of this share over the folds.
        folds: this share in each fold of the cross-validation.
        features: the number of features of an image.
        p_value: the larger of two p-values, of tests against the pixels and against chance,
            adjusted for the number of layers; null for a control.
    """

    layer: str
    control: Control
    accuracy: Share
    spread: float
    folds: tuple[Share, ...]
    features: AtLeastOne
    p_value: Share | None = None


@dataclass(frozen=True, slots=True)
class ConfusionRow:
    """A pair of a label and a predicted label, and how many images have this pair.

    Attributes:
        label: the label of the images.
        predicted: the predicted label.
        images: the number of images.
    """

    label: str
    predicted: str
    images: Whole


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """The label of an image, and the label that the best layer predicts.

    Attributes:
        image: the image's key, its unique name in the run; in ``predictions.csv``, its file.
        label: the label.
        predicted: the label predicted by a classifier that was fitted without the image.
    """

    image: str
    label: str
    predicted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDocument(AnalysisDocument):
    """The output of ``hookcli probe --format json``.

    Attributes:
        classes: the labels, the most common one first.
        chance: the share of images with the most common label.
        unlabelled: the number of images without a label, which were left out.
        best: the id of the call (layer) with the highest accuracy.
        verdict: whether any layer is clearly above the controls, in words.
        layers: one row for each layer, in the order in which the layers ran, then the controls.
        left_out: the ids of calls without a class token to probe, or with the same features for all
            images.
        confusions: what the best layer predicts for each label's images; empty pairs are left out.
        predictions: what the best layer predicts for each image.
    """

    classes: tuple[ClassRow, ...]
    chance: Share
    unlabelled: Whole
    best: str
    verdict: str
    layers: Rows[ProbeRow]
    left_out: tuple[str, ...]
    confusions: tuple[ConfusionRow, ...]
    predictions: tuple[PredictionRow, ...]


@dataclass(frozen=True, slots=True)
class ProbeScore:
    folds: tuple[float, ...]
    predicted: NDArray[np.str_]

    def row(self, layer: str, features: int, control: Control = "") -> ProbeRow:
        mean, spread = float(np.mean(self.folds)), float(np.std(self.folds))
        return ProbeRow(layer, control, mean, spread, self.folds, features)


def probe_features(features: Features, labels: Sequence[str], folds: int = 5) -> ProbeScore:
    """Cross-validate a logistic regression that predicts labels from features.

    The result equals scikit-learn's for ``make_pipeline(StandardScaler(),
    LogisticRegression(max_iter=1000))`` over ``StratifiedKFold(folds, shuffle=True,
    random_state=0)``. ``features`` (images, C) has one row for each of ``labels``.
    """
    require_package("a probe needs", "sklearn", "scikit-learn", "analysis")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    check_labels(labels, folds)
    check_finite(features)
    if not np.ptp(features, axis=0).any():
        raise EmptyLayerError("the features are the same for all images", "leave the layer out")
    known = np.array(labels)
    predicted = np.empty_like(known)
    shares = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(features, known):
        fitted, tested = features[train], features[test]
        for start in range(0, features.shape[1], _COLUMNS):
            columns = slice(start, start + _COLUMNS)
            scaler = StandardScaler(copy=False).fit(fitted[:, columns])
            scaler.transform(fitted[:, columns])
            scaler.transform(tested[:, columns])
        model = LogisticRegression(max_iter=_STEPS)
        # With several threads, these small products took 13 to 40 times as long.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(fitted, known[train])
        predicted[test] = model.predict(tested)
        shares.append(float(np.mean(predicted[test] == known[test])))
    return ProbeScore(tuple(shares), predicted)


def check_labels(labels: Sequence[str], folds: int) -> None:
    counts = Counter(labels)
    if len(counts) < 2:
        what = f"all {len(labels)} images have the label {next(iter(counts), '')!r}"
        raise RequestError(what, "a probe needs at least two labels")
    label, least = min(counts.items(), key=lambda each: (each[1], each[0]))
    if least < folds:
        raise RequestError(
            f"the label {label!r} has {least} image{'' if least == 1 else 's'}, "
            f"fewer than the {folds} folds",
            "use more images, or fewer `folds`",
        )


def probe_layer(
    call: SavedCall, keys: Sequence[str], labels: Sequence[str], pool: Pool = "mean", folds: int = 5
) -> Probed:
    known = set(call.images)
    for key in keys:
        if key not in known:
            raise RequestError(f"{call.call_id!r} has no tensor of {key!r}", "leave the layer out")
    features = call.pool_features(pool, keys)
    try:
        score = probe_features(features, labels, folds)
    except RequestError as error:
        raise type(error)(f"{call.call_id!r}: {error.message}", error.hint) from error
    return score.row(call.call_id, features.shape[1]), score.predicted


def probe_layers(
    calls: Sequence[SavedCall],
    keys: Sequence[str],
    labels: Sequence[str],
    pool: Pool,
    folds: int,
    layer_done: Callable[[], None],
    *,
    least: int,
) -> dict[str, Probed]:
    """Probe how well each call's features predict ``labels``, and return the results by call id.

    ``keys`` has the images' keys in the order of ``labels``. Leave out a call whose features cannot
    be probed; if fewer than ``least`` calls would remain, raise its EmptyLayerError instead. Call
    ``layer_done`` after each call.
    """
    scores, left = {}, len(calls)
    for call in calls:
        try:
            scores[call.call_id] = probe_layer(call, keys, labels, pool, folds)
        except EmptyLayerError:
            left -= 1
            if left < least:
                raise
        layer_done()
    return scores


def judge(
    rows: Sequence[ProbeRow], chance: float, images: int, hits: Sequence[NDArray[np.bool_]] = ()
) -> tuple[list[ProbeRow], str]:
    """Return the rows with the p-values of the layers, and a verdict in words.

    A layer is tested against the pixels and against ``chance``, the accuracy of a guess. The larger
    of its p-values counts, adjusted for the number of layers (Holm 1979, A simple sequentially
    rejective multiple test procedure). ``images`` is the number of images. ``hits`` has arrays
    (images,) that say which images the best layer and, if probed, the pixels predict correctly. If
    ``hits`` is given, an exact test over all images (McNemar 1947) shows whether there are too few
    folds to decide.
    """
    layers = [row for row in rows if not row.control]
    bases = {f"the {row.layer}": row.folds for row in rows if row.control == "pixels"}
    bases["chance"] = (chance,) * len(layers[0].folds)
    tests = [[_test(row.folds, base, images) for row in layers] for base in bases.values()]
    p_values = dict(zip((row.layer for row in layers), _adjust(np.max(tests, 0)), strict=True))
    clear = [row.layer for row in layers if p_values[row.layer] <= _CLEAR]
    failed = [name for name, test in zip(bases, tests, strict=True) if min(_adjust(test)) > _CLEAR]
    base = f"{' and '.join(failed or bases)} (least p = {min(p_values.values()):.2g})"
    verdict = f"no layer is clearly above {base}; more images or folds "
    verdict += "can show less of a difference"
    if hits and _test_hits(hits, chance) <= _CLEAR:
        verdict = f"cannot tell with {count(images, 'image')} in {len(layers[0].folds)} folds "
        verdict += f"whether a layer is above {base}; give more images, or more folds"
    if clear:
        best = max(layers, key=lambda row: (row.layer in clear, row.accuracy)).layer
        of_all = f"{len(clear)} of {count(len(layers), 'layer')}"
        verdict = f"clearly above {' and '.join(bases)}: {of_all}, the best of them {best} "
        verdict += f"(p = {p_values[best]:.2g})"
    others = {row.layer: row.folds for row in rows if row.control == "run"}
    both = [(row.folds, others[row.layer]) for row in layers if row.layer in others]
    if paired := [_test(*pair, images) for pair in both]:
        above = sum(each <= _CLEAR for each in _adjust(paired))
        verdict += f"; clearly above the same layer of the control run: {above} of {len(paired)}"
    judged = [row if row.control else replace(row, p_value=p_values[row.layer]) for row in rows]
    return judged, verdict


def _test(folds: Sequence[float], base: Sequence[float], images: int) -> float:
    """Return the p-value of a one-sided paired t-test of accuracies (of folds) against a base."""
    # Nadeau and Bengio 2003, Inference for the generalization error, Machine Learning 52, correct
    # it because folds share training images. The deviation counts as at least one image of a fold,
    # since folds of few images agree by chance. ``images`` is the number in all folds.
    from scipy.special import stdtr

    number, differences = len(folds), np.subtract(folds, base)
    spread = max(float(differences.std(ddof=1)), number / images)
    error = spread * math.sqrt(1 / number + 1 / (number - 1))  # one fold tests, the others train
    return float(stdtr(number - 1, -differences.mean() / error))


def _test_hits(hits: Sequence[NDArray[np.bool_]], chance: float) -> float:
    from scipy.special import bdtrc

    own, *pixels = hits
    tests = [(own, chance), *((own[own != each], 0.5) for each in pixels)]
    return max(float(bdtrc(best.sum() - 1, len(best), share)) for best, share in tests)


def _adjust(p_values: Sequence[float]) -> list[float]:
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted = np.maximum.accumulate(scaled).clip(max=1)
    return [float(each) for each in adjusted[np.argsort(order)]]


def open_control(
    run: Run, control: Run | None, calls: Sequence[SavedCall], keys: Sequence[str], pool: Pool
) -> tuple[list[SavedCall], list[str]]:
    """Return the calls and image keys of the run ``control`` that match ``calls`` and ``keys``."""
    # ``calls`` and ``keys`` are those of ``run``, and ``control`` must have all of them.
    if control is None:
        return [], []
    found = {call.call_id: call for call in open_calls(control, pool=pool)}
    name = repr(str(control.folder))
    for call in calls:
        if call.call_id not in found:
            what = f"the control {name} has no {call.call_id!r}"
            raise RequestError(what, "save the same layers in both runs")
    if str(run.folder) == str(control.folder):
        what = f"the control {name} is the run itself"
        raise RequestError(what, "name another run, such as one with random weights")
    same = match_contents(run, control)
    for key in keys:
        if key not in same:
            what = f"the control {name} has no image {key!r}"
            raise RequestError(what, "use the same images in both runs")
    return [found[call.call_id] for call in calls], [same[key] for key in keys]


def probe_pixels(
    run: Run, keys: Sequence[str], labels: Sequence[str], folds: int
) -> tuple[list[Probed], str]:
    """Predict labels from the photos' pixels; return ``([result], "")``, or ``([], reason)``."""
    try:
        pixels = read_pixels(run, keys)
        score = probe_features(pixels, labels, folds)
    except HookcliError as error:
        return [], error.message
    return [(score.row("pixels", pixels.shape[1], "pixels"), score.predicted)], ""


def read_pixels(run: Run, keys: Sequence[str]) -> Features:
    files, contents = list_files(run), list_contents(run)
    rows = np.empty((len(keys), 3 * PIXELS * PIXELS), np.float32)
    for row, key in enumerate(keys):
        try:
            content = ImageSource(key, files[key]).read()
        except UndecodableError as error:
            is_held = not run.manifest.get("command") and files[key].startswith("image-")
            reason = "was in memory, and no run keeps it: give it as a file" if is_held else error
            raise RequestError(f"{files[key]} {reason}") from error
        photo = content.pictures[0] if content.pictures else None
        if content.sha256 != contents[key] or not isinstance(photo, Image.Image):
            raise RequestError(f"{files[key]} has changed, or is no photo")
        small = photo.resize((PIXELS, PIXELS), Image.Resampling.BOX)
        rows[row] = np.asarray(small, np.float32).ravel()
    return rows


def list_confusions(
    labels: Sequence[str], predicted: Sequence[str], classes: Mapping[str, int]
) -> Iterator[ConfusionRow]:
    counts = Counter(zip(labels, predicted, strict=True))
    for pair in product(classes, classes):
        if counts[pair]:
            yield ConfusionRow(*pair, images=counts[pair])
