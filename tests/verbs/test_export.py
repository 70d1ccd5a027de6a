"""``hookcli.export``: the saved tensors of a run as files, from Python."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import hookcli
from hookcli import HookcliError
from hookcli.plan import check
from tests.toy_runs import ToyRun, array

RUN = ToyRun(
    {"cat": {"conv": array([1, 2]), "fc": array([3])}, "dog": {"conv": array([4, 5])}},
)


def test_without_a_folder_the_files_are_in_memory():
    found = hookcli.export(RUN.write("run"), to="npy")
    assert [row.file for row in found.rows] == [*found.files]
    assert [*found.files] == ["conv.npy", "fc.npy", "images.csv", "fc.images.csv"]
    data = found.files["conv.npy"]
    assert isinstance(data, bytes)
    assert np.load(io.BytesIO(data)).tolist() == [[1, 2], [4, 5]]
    assert found.rows[0].shape == (2, 2)
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_with_a_folder_the_files_are_in_it():
    found = hookcli.export(RUN.write("run"), to="csv", out="out", layers="conv")
    assert found.files == {"conv.csv": Path("out/conv.csv"), "images.csv": Path("out/images.csv")}
    assert [row.file for row in found.document().files] == ["out/conv.csv", "out/images.csv"]


def test_what_is_too_much_for_memory_needs_a_folder(monkeypatch):
    RUN.write("run")
    monkeypatch.setattr(check, "_MOST_MEGABYTES", 0)
    with pytest.raises(HookcliError, match=r"2 images and up to about 0 MB are too much") as caught:
        hookcli.export("run", to="npy")
    assert caught.value.hint == "name a folder with `out`"
    assert hookcli.export("run", to="npy", out="out").exit_code == 0
