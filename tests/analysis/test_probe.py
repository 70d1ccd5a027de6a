"""Probes, against scikit-learn used by hand."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hookcli.analysis.features import open_calls
from hookcli.analysis.probe import (
    ProbeRow,
    judge,
    list_confusions,
    open_control,
    probe_features,
    probe_layer,
    read_pixels,
)
from hookcli.errors import RequestError
from hookcli.outside.files import hash_file
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun, edit_json

DRAW = np.random.default_rng(0)
LABELS = ["cat", "dog", "eel"] * 20
FEATURES = (
    DRAW.normal(size=(60, 8)) + np.array([LABELS.index(label) for label in LABELS])[:, None] / 2
).astype(np.float32)


def by_hand(features, folds):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    scores = cross_val_score(model, features, LABELS, cv=split)
    return scores, cross_val_predict(model, features, LABELS, cv=split)


@pytest.mark.parametrize("folds", [2, 5])
def test_a_probe_is_scikit_learns_own_result(folds):
    scores, predicted = by_hand(FEATURES, folds)
    found = probe_features(FEATURES, LABELS, folds)
    assert found.folds == pytest.approx(scores)
    assert list(found.predicted) == list(predicted)
    row = found.row("fc", 8)
    assert (row.accuracy, row.spread) == pytest.approx((scores.mean(), scores.std()))


def write(folder, features=FEATURES, count=60):
    images = {f"photo{n:02}": {"fc": features[n : n + 1]} for n in range(count)}
    return load_run(ToyRun(images).write(folder))


def test_a_layer_is_probed_with_the_images_that_have_labels(tmp_path):
    (call,) = open_calls(write(tmp_path / "run"))
    keys = [f"photo{n:02}" for n in range(59, 9, -1)]
    labels = [LABELS[n] for n in range(59, 9, -1)]
    row, predicted = probe_layer(call, keys, labels)
    alone = probe_features(FEATURES[59:9:-1], labels)
    assert row == alone.row("fc", 8)
    assert list(predicted) == list(alone.predicted)
    rows = list_confusions("aabb", "abbb", {"b": 2, "a": 2})
    assert [(row.label, row.predicted, row.images) for row in rows] == [
        *(("b", "b", 2), ("a", "b", 1), ("a", "a", 1))
    ]


def test_a_layer_that_cannot_be_probed_is_named(tmp_path):
    (call,) = open_calls(write(tmp_path / "run", np.ones_like(FEATURES)))
    with pytest.raises(RequestError, match="'fc': the features are the same for all images"):
        probe_layer(call, list(call.images), LABELS)
    with pytest.raises(RequestError, match="'fc' has no tensor of 'dog'"):
        probe_layer(call, ["dog"], ["cat"])


def test_labels_that_do_not_suffice_are_refused():
    with pytest.raises(RequestError, match="all 60 images have the label 'cat'"):
        probe_features(FEATURES, ["cat"] * 60)
    with pytest.raises(RequestError, match="the label 'ox' has 1 image, fewer than the 5 folds"):
        probe_features(FEATURES, [*LABELS[1:], "ox"])


def test_the_control_run_may_name_and_order_its_images_differently(tmp_path):
    run = write(tmp_path / "run", count=3)
    images = {key: {"fc": FEATURES[:1]} for key in ("x", "y", "z")}
    hashes = {"x": "hash of photo02", "y": "hash of photo00", "z": "hash of photo01"}
    control = load_run(ToyRun(images, hashes=hashes).write(tmp_path / "control"))
    calls, keys = open_control(run, control, open_calls(run), ["photo00", "photo02"], "mean")
    assert ([call.run for call in calls], keys) == ([control], ["y", "x"])
    other = load_run(ToyRun({"x": {"fc": FEATURES[:1]}}).write(tmp_path / "other"))
    with pytest.raises(RequestError, match="has no image 'photo00'"):
        open_control(run, other, open_calls(run), ["photo00"], "mean")


@pytest.fixture
def photos(tmp_path):
    """A run of two photos that lie beside it: the left half black, and the upper half."""
    folder = ToyRun({key: {"x": np.ones((1, 2), "f4")} for key in "ab"}).write(tmp_path / "run")
    facts = []
    for key, box in (("a", (0, 0, 16, 32)), ("b", (0, 0, 32, 16))):
        photo = Image.new("RGB", (32, 32), "white")
        photo.paste("black", box)
        photo.save(tmp_path / f"{key}.png")
        (image,) = (each for each in load_run(folder).manifest["images"] if each["key"] == key)
        file = str(tmp_path / f"{key}.png")
        facts.append(image | {"file": file, "sha256": hash_file(file)})
    edit_json(folder / "manifest.json", images=facts)
    return load_run(folder)


def test_the_pixels_of_photos_are_shrunk_to_16_by_16(photos):
    pixels = read_pixels(photos, ["a", "b"])
    one, two = pixels.reshape(2, 16, 16, 3)
    assert (one[:, :8].max(), one[:, 8:].min()) == (0, 255)
    assert (two[:8].max(), two[8:].min()) == (0, 255)


def test_photos_that_changed_or_are_gone_are_no_control(photos, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    with pytest.raises(RequestError, match=r"b\.png has changed"):
        read_pixels(photos, ["a", "b"])
    (tmp_path / "a.png").unlink()
    with pytest.raises(RequestError, match=r"a\.png"):
        read_pixels(photos, ["a"])


def rows_of(*layers, pixels=(0.5, 0.6, 0.5, 0.4, 0.5), control=None):
    """Rows of layers, each with its accuracies in five folds."""
    rows = [
        ProbeRow(name, "", np.mean(folds), np.std(folds), folds, 8)
        for name, folds in zip("abcdefgh", layers, strict=False)
    ]
    if pixels is not None:
        rows.append(ProbeRow("pixels", "pixels", np.mean(pixels), 0.1, pixels, 768))
    if control is not None:
        rows.append(ProbeRow("a", "run", np.mean(control), 0.1, control, 8))
    return rows


GOOD, POOR = (0.9, 0.95, 0.9, 0.85, 0.92), (0.5, 0.55, 0.6, 0.4, 0.5)


def test_the_verdict_is_that_of_the_corrected_t_test():
    from scipy import stats

    (row, *_), verdict = judge(rows_of(GOOD), 0.2, 500)
    one, two = np.array(GOOD), np.array((0.5, 0.6, 0.5, 0.4, 0.5))
    plain = stats.ttest_rel(one, two, alternative="greater").statistic
    t = plain / np.sqrt(5 * (1 / 5 + 1 / 4))  # one fold is a quarter of the other four
    assert row.p_value == pytest.approx(stats.t.sf(t, 4))
    assert verdict == (
        "clearly above the pixels and chance: 1 of 1 layer, the best of them a "
        f"(p = {row.p_value:.2g})"
    )


def test_a_verdict_is_stricter_the_more_layers_there_are():
    alone = judge(rows_of(GOOD), 0.2, 500)[0][0].p_value
    rows, _ = judge(rows_of(GOOD, POOR, POOR), 0.2, 500)
    assert rows[0].p_value == pytest.approx(3 * alone)
    assert rows[1].p_value == rows[2].p_value > 0.2


def test_a_layer_must_be_above_the_pixels_and_above_chance():
    rows, verdict = judge(rows_of(POOR, POOR), 0.1, 500)
    assert verdict.startswith("no layer is clearly above the pixels (least p = ")
    assert rows[-1].p_value is None
    few, many = (judge(rows_of((1.0,) * 5, pixels=(0.5,) * 5), 0.5, n)[0][0] for n in (10, 1000))
    assert few.p_value > 0.05  # folds of few images that agree prove nothing
    assert many.p_value < 1e-4
    low = (0.1, 0.12, 0.1, 0.08, 0.1)
    verdict = judge(rows_of(POOR, pixels=low), 0.6, 500)[1]
    assert verdict.startswith("no layer is clearly above chance (")


@pytest.mark.parametrize(("wins", "losses", "is_chance"), [(5, 0, False), (8, 3, True)])
def test_folds_that_are_too_few_for_a_clear_difference_cannot_tell(wins, losses, is_chance):
    from scipy import stats

    exact = stats.binomtest(wins, wins + losses, alternative="greater").pvalue
    assert (exact > 0.05) == is_chance
    best = np.arange(12) >= losses
    hits = (best, ~best | (np.arange(12) >= losses + wins))
    folds = rows_of((1.0, 0.9, 0.2, 1.0, 1.0))
    verdict = judge(folds, 0.1, 12, hits)[1]
    assert verdict.startswith(
        "no layer is clearly above the pixels (least p = 0.1"
        if is_chance
        else "cannot tell with 12 images in 5 folds whether a layer is above the pixels (least p = "
    )


def test_the_layers_of_a_control_run_are_compared_one_by_one():
    verdict = judge(rows_of(GOOD, POOR, control=GOOD), 0.2, 500)[1]
    assert verdict.endswith("; clearly above the same layer of the control run: 0 of 1")


def test_layers_that_know_nothing_pass_the_verdict_in_5_of_100_draws_at_most():
    draw, passed = np.random.default_rng(1), 0
    for _ in range(400):
        a, b, c, pixels = (tuple(draw.binomial(20, 0.5, 5) / 20) for _ in range(4))
        passed += "best of them" in judge(rows_of(a, b, c, pixels=pixels), 0.5, 100)[1]
    assert passed <= 20


@pytest.mark.parametrize("scale", [1e-30, 1e60])
def test_the_scale_of_features_does_not_change_the_probe(scale):
    scaled = (FEATURES * np.array(scale)).astype("f4" if scale < 1e38 else "f8")
    assert probe_features(scaled, LABELS).folds == probe_features(FEATURES, LABELS).folds
