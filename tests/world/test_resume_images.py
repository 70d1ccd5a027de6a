"""``--resume`` of a complete run compares its images with those that are given now."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

WORDS = ("net.py:make", "photos", "--device", "cpu", "--grids", "none", "-o", "out", "--resume")


def add(name, shade=100):
    Image.new("RGB", (32, 32), (shade, 50, 50)).save(Path("photos", name))


@pytest.fixture
def complete(run):
    Path("net.py").write_text("from torch import nn\ndef make(): return nn.Conv2d(3, 2, 3)\n")
    Path("photos").mkdir()
    add("a.png")
    add("b.png")
    Path("photos/c.png").write_text("none")
    assert run("inspect", *WORDS).code == 6


def test_the_same_images_are_complete(run, complete):
    ended = run("inspect", *WORDS)
    said = "the run in 'out' is complete; 1 image skipped, see skipped.csv\n"
    assert (ended.code, ended.err) == (6, said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: [add("d.png"), add("e.png")], "but without 'photos/d.png' and 1 more"),
        (lambda: Path("photos/b.png").unlink(), "but with 'photos/b.png', which is not given now"),
        (lambda: add("b.png", 101), "but 'photos/b.png' has changed since"),
    ],
)
def test_other_images_are_named(run, complete, change, said):
    change()
    ended = run("inspect", *WORDS)
    assert ended.code == 2
    assert ended.err.startswith(f"error: --resume: the run in 'out' is complete, {said}\n")


def test_rows_of_tensor_files_are_images_too(run, complete):
    shutil.rmtree("photos")
    Path("photos").mkdir()
    np.save("photos/rows.npy", np.zeros((2, 3, 8, 8), np.float32))
    assert run("inspect", *WORDS[:-1], "--overwrite").code == 0
    assert run("inspect", *WORDS).code == 0
    np.save("photos/rows.npy", np.zeros((3, 3, 8, 8), np.float32))
    assert "but without 'photos/rows.npy[2]'" in run("inspect", *WORDS).err
