"""``hookcli.map``."""

from __future__ import annotations

import numpy as np
import pytest

import hookcli
from hookcli.errors import RequestError
from tests.toy_runs import ToyRun

VALUES = {"a": (1, 0), "b": (1, 0), "c": (1, 1), "d": (-1, 2)}
NAMES = {"map.csv", "map.png", "neighbours.csv", "report.html"}


@pytest.fixture
def folder(tmp_path):
    images = {key: {"fc": np.array([value], "f4")} for key, value in VALUES.items()}
    return ToyRun(images).write(tmp_path / "run")


def test_the_images_are_laid_out_and_nothing_is_written(folder):
    found = hookcli.map(folder, labels={"d": 7, "a.png": "x"}, neighbours=1)
    assert [(row.image, row.label) for row in found.rows[:2]] == [("d.png", "7"), ("c.png", "")]
    assert found.rows[0].nearest == "c.png"
    assert found.result.duplicates == (("a.png", "b.png"),)
    assert found.files.keys() == NAMES
    assert "component 1" in found.page.html
    assert "outliers (1)" in found.page.html
    assert not (folder.parent / "hookcli-analyses").exists()


def test_out_is_the_folder_of_the_map(folder):
    found = hookcli.map(folder, out="out", labels=["x", None, "y", "y"])
    assert found.files["map.csv"].read_bytes()
    labels = {row.image: row.label for row in found.rows}
    assert labels == {"a.png": "x", "b.png": "", "c.png": "y", "d.png": "y"}
    assert found.result.command[-2:] == ("--labels", "FILE.csv")


def test_too_few_labels_are_refused_in_words_of_python(folder):
    with pytest.raises(RequestError, match="`labels` has 1 labels, and the run has 4 images"):
        hookcli.map(folder, labels=["x"])
