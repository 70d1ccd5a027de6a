"""Linear CKA, against its definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from hookcli.analysis import similarity
from hookcli.analysis.features import open_calls
from hookcli.analysis.similarity import (
    LayerSimilarity,
    compare_layers,
    linear_cka,
    split_images,
)
from hookcli.errors import RequestError
from hookcli.reading.load import load_run
from tests.toy_runs import ToyRun

DRAW = np.random.default_rng(0)


def hsic(one, two):
    """Equation 5 of Song et al. 2012, with matrices as written there."""
    n = len(one)
    k, m = (each - np.diag(np.diag(each)) for each in (one, two))
    ones = np.ones(n)
    total = np.trace(k @ m)
    total += (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
    return (total - 2 / (n - 2) * ones @ k @ m @ ones) / (n * (n - 3))


def cka(x, y):
    x, y = (np.reshape(each, (len(each), -1)).astype(np.float64) for each in (x, y))
    k, m = x @ x.T, y @ y.T
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


def related(count, width=20, offset=0.0):
    """Two arrays of features, of which the second depends on the first."""
    x = DRAW.normal(size=(count, width)).astype(np.float32) + np.float32(offset)
    y = x[:, :7] @ DRAW.normal(size=(7, 12)) + 2 * DRAW.normal(size=(count, 12))
    return x, y.astype(np.float32)


def write(folder, **calls):
    """Write a run with the same images and the features (images, ...) of each call."""
    count = len(next(iter(calls.values())))
    images = {
        f"photo{image:04}": {name: values[image : image + 1] for name, values in calls.items()}
        for image in range(count)
    }
    return load_run(ToyRun(images).write(folder))


@pytest.mark.parametrize("offset", [0, 100])
def test_cka_equals_its_definition(offset):
    x, y = related(50, offset=offset)
    assert linear_cka(x, y) == pytest.approx(cka(x, y), abs=1e-6)


def test_cka_is_one_with_itself_and_after_rotation_and_scaling():
    x, _ = related(40)
    rotation, _ = np.linalg.qr(DRAW.normal(size=(20, 20)))
    assert linear_cka(x, x) == pytest.approx(1, abs=1e-12)
    assert linear_cka(x, (7 * x @ rotation).astype(np.float32)) == pytest.approx(1, abs=1e-6)


def test_maps_are_flattened_as_they_were_saved(tmp_path):
    a = DRAW.normal(size=(30, 3, 4, 4)).astype(np.float32)
    b = (a.sum(1, keepdims=True) + DRAW.normal(size=(30, 1, 4, 4))).astype(np.float32)
    run = write(tmp_path / "run", a=a, b=b)
    found = compare_layers(open_calls(run)).ckas
    assert found == pytest.approx(np.array([[1, cka(a, b)], [cka(a, b), 1]]), abs=1e-6)


def test_pooled_maps_are_compared_by_their_means(tmp_path):
    a = DRAW.normal(size=(30, 3, 4, 4)).astype(np.float32)
    b = DRAW.normal(size=(30, 5)).astype(np.float32)
    found = compare_layers(open_calls(write(tmp_path / "run", a=a, b=b)), pool="mean")
    assert found.ckas[0, 1] == pytest.approx(cka(a.mean((2, 3)), b), abs=1e-6)


def test_features_that_are_read_in_parts_give_the_same(tmp_path, monkeypatch):
    a = DRAW.normal(size=(30, 3, 4, 4)).astype(np.float32)
    b = DRAW.normal(size=(30, 50)).astype(np.float32)
    calls = open_calls(write(tmp_path / "run", a=a, b=b))
    monkeypatch.setattr(similarity, "_PART", 4 * 30 * 5)  # five values of each image at a time
    monkeypatch.setattr(similarity, "_SLICE", 100)
    assert compare_layers(calls).ckas[0, 1] == pytest.approx(cka(a, b), abs=1e-6)


def test_two_runs_are_compared_by_the_content_of_their_images(tmp_path):
    x, y = related(30)
    one = write(tmp_path / "one", a=x)
    order = DRAW.permutation(30)
    images = {f"other{n}": {"b": y[n : n + 1]} for n in order}
    hashes = {f"other{n}": f"hash of photo{n:04}" for n in order}
    two = load_run(ToyRun(images, hashes=hashes).write(tmp_path / "two"))
    found = compare_layers(open_calls(one), open_calls(two))
    assert found.ckas.item() == pytest.approx(cka(x, y), abs=1e-6)
    assert found.images == 30


def test_batches_of_images_are_near_all_at_once(tmp_path, monkeypatch):
    x, y = related(800)
    x, y = (each[np.argsort(x[:, 0])] for each in (x, y))  # sorted, as photos of classes are
    calls = open_calls(write_together(tmp_path / "run", a=x, b=y))
    exact = compare_layers(calls)
    monkeypatch.setattr(similarity, "MOST_EXACT", 799)
    batches = compare_layers(calls)
    assert (exact.batch, batches.batch) == (800, 200)
    assert exact.ckas[0, 1] == pytest.approx(cka(x, y), abs=1e-6)
    assert batches.ckas[0, 1] == pytest.approx(exact.ckas[0, 1], abs=0.02)


def write_together(folder, **calls):
    """Write a run with one shard for all images."""
    run = write(folder, **{name: values[:4] for name, values in calls.items()})
    count = len(next(iter(calls.values())))
    keys = tuple(f"photo{image:04}" for image in range(count))
    save_file(dict(calls), folder / "tensors/shard-000000.safetensors")
    first = {name: run.saved[name][0] for name in calls}
    saved = {name: (replace(first[name], shape=calls[name].shape, images=keys),) for name in calls}
    image = run.manifest["images"][0]
    images = [image | {"key": key, "sha256": key} for key in keys]
    return replace(run, saved=saved, manifest=run.manifest | {"images": images})


def test_all_images_are_in_one_batch_up_to_2000_and_in_equal_ones_above():
    assert [len(each) for each in split_images(2000)] == [2000]
    sizes = [len(each) for each in split_images(2001)]
    assert (sum(sizes), max(sizes) - min(sizes), len(sizes)) == (2001, 1, 8)
    assert np.array_equal(split_images(2001)[0], split_images(2001)[0])
    # neighbours in a folder are often alike, so that they come into different batches
    assert np.ptp(split_images(2001)[0]) > 1500


def test_each_pair_of_one_run_is_listed_once_and_each_layer_has_a_partner():
    ckas = np.array([[1, 0.2, 0.6], [0.2, 1, 0.3], [0.6, 0.3, 1]])
    names = ("x", "y", "z")
    result = LayerSimilarity(names, names, (), ckas, images=9, batch=9, is_one_run=True)
    pairs = [(row.a, row.b, row.cka) for row in result.list_pairs()]
    assert pairs == [("x", "y", 0.2), ("x", "z", 0.6), ("y", "z", 0.3)]
    partners = [(row.a, row.b) for row in result.list_partners()]
    assert partners == [("x", "z"), ("y", "z"), ("z", "x")]
    assert len([*replace(result, is_one_run=False).list_pairs()]) == 9


def test_what_cannot_be_compared_is_said(tmp_path):
    x, _ = related(5)
    nan = x.copy()
    nan[3, 2] = np.nan
    constant = np.ones_like(x)
    run = write(tmp_path / "run", a=x, nan=nan, constant=constant)
    a, broken, same = open_calls(run)
    with pytest.raises(RequestError, match="'nan' has NaN or Inf, first for 'photo0003'"):
        compare_layers([a, broken])
    with pytest.raises(RequestError, match="'constant' has the same features for all images"):
        compare_layers([a, same])
    few = write(tmp_path / "few", a=x[:3])
    with pytest.raises(RequestError, match="at least 4 images, not 3"):
        compare_layers(open_calls(few))
    other = load_run(ToyRun({"dog": {"a": x[:1]}}).write(tmp_path / "other"))
    with pytest.raises(RequestError, match="the runs have no image in common"):
        compare_layers([a], open_calls(other))


@pytest.mark.parametrize("scale", [1e-30, 1e60])
def test_the_scale_of_features_does_not_change_cka(tmp_path, scale):
    x, y = related(40)
    scaled = (x * np.array(scale)).astype("f4" if scale < 1e38 else "f8")
    assert linear_cka(scaled, y) == pytest.approx(linear_cka(x, y), abs=1e-6)
    result = compare_layers(open_calls(write(tmp_path / "run", a=scaled, b=y)))
    assert result.ckas[0, 1] == pytest.approx(linear_cka(x, y), abs=1e-5)
