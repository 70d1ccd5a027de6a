"""``hookcli.probe``."""

from __future__ import annotations

import numpy as np
import pytest

import hookcli
from hookcli.errors import RequestError
from tests.toy_runs import ToyRun

KEYS = [f"photo{number}" for number in range(12)]
LABELS = [number % 2 for number in range(12)]


def write(folder, strength):
    draw = np.random.default_rng(0)
    images = {
        key: {
            "fc": draw.normal(size=(1, 3)).astype("f4") + strength * label,
            "flat": np.ones((1, 3), "f4"),
        }
        for key, label in zip(KEYS, LABELS, strict=True)
    }
    return ToyRun(images).write(folder)


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "run", strength=9)


@pytest.mark.filterwarnings("ignore::hookcli.HookcliWarning")
def test_the_layer_that_knows_the_labels_is_found_and_nothing_is_written(folder, tmp_path):
    control = write(tmp_path / "control", strength=0)
    found = hookcli.probe(folder, labels=LABELS, folds=3, control=control)
    assert [(row.layer, row.control) for row in found.rows] == [("fc", ""), ("fc", "run")]
    assert (found.rows[0].accuracy, found.result.left_out) == (1, ("flat",))
    assert "control" in found.table().look.columns
    assert [row.control for row in found.table().rows] == [""]
    assert {"probe.csv", "probe.png", "confusions.png"} <= found.files.keys()
    assert b">std</th>" in found.files["report.html"]
    assert not (tmp_path / "hookcli-analyses").exists()


def test_the_photos_that_are_missing_are_a_warning_and_out_is_written(folder):
    with pytest.warns(hookcli.HookcliWarning, match="no control of the pixels: "):
        found = hookcli.probe(folder, labels=dict(zip(KEYS, LABELS, strict=True)), out="out")
    assert [note.level for note in found.notes] == ["plan", "warning", "note"]
    assert found.files["probe.csv"].read_bytes().startswith(b"layer,control,accuracy")
    assert found.result.unlabelled == 0


def test_what_cannot_be_probed_is_refused_in_words_of_python(folder):
    with pytest.raises(RequestError, match="`labels` has 2 labels, and the run has 12 images"):
        hookcli.probe(folder, labels=["a", "b"])
    with pytest.raises(RequestError, match="'flat': the features are the same for all images"):
        hookcli.probe(folder, labels=LABELS, layers="flat")
    with pytest.raises(RequestError, match=r"`hookcli\.probe` needs 'labels'"):
        hookcli.probe(folder)
    with pytest.raises(RequestError, match="`labels='folders'` needs photos in files"):
        hookcli.probe("resnet18", [np.zeros((8, 8))], labels="folders")
