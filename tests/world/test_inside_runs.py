"""No command writes a folder into a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import run_in

MODEL = """
from torch import nn
def make():
    return nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU())
"""
MAKE = ("model.py:make", "a.png", "b.png", "--size", "8")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "model.py").write_text(MODEL)
    for name, colour in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (8, 8), colour).save(folder / name)
    for out in ("run", "other"):
        words = ("--layers", "leaf", "--save", "tensors", "-o", out)
        assert run_in(folder, "inspect", *MAKE, *words).code == 0
    return folder


@pytest.mark.parametrize("sub", ["grids/sub", "../run/sub"])
@pytest.mark.parametrize(
    "words",
    [
        ("inspect", *MAKE, "--overwrite", "-o"),
        ("gradients", *MAKE, "--score", "sum", "--overwrite", "-o"),
        ("places", "other", "--overwrite", "-o"),
        ("similarity", *MAKE, "--layers", "leaf", "-o", "new", "--keep-run"),
        ("export", "other", "--to", "npy", "--overwrite", "-o"),
        ("diff", "run", "other", "--pictures"),
    ],
    ids=lambda words: " ".join(words[::5]),
)
def test_no_command_writes_a_folder_into_a_run(home, words, sub):
    before = {file: file.stat().st_mtime_ns for file in home.rglob("*")}
    ended = run_in(home, *words, f"run/{sub}")
    assert (ended.code, "run' is a run's folder" in ended.err) == (5, True), ended.err
    assert {file: file.stat().st_mtime_ns for file in home.rglob("*")} == before


def test_a_run_in_the_working_folder_is_replaced(home, tmp_path):
    folder = shutil.copytree(home / "run", tmp_path / "run")
    words = (home / "model.py:make", home / "a.png", "--size", "8", "-o", ".", "--overwrite")
    assert run_in(folder, "inspect", *words).code == 0
    assert not (folder / "tensors").exists()


def test_a_folder_beside_a_run_can_be_written(home):
    assert run_in(home, "export", "run", "--to", "npy", "-o", "run-tables").code == 0
    assert Path(home, "run-tables/images.csv").exists()
