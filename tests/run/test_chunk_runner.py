"""Chunks of images through a model, and what the first image shows of it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

NET = """
import torch
from torch import nn

class Boxes(nn.Module):
    def forward(self, x):
        most = x.amax().reshape(1)
        return torch.cat([-most, most])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.boxes, self.fc = Boxes(), nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(self.boxes(x)).expand(len(x), 2)

def make():
    return Net()
"""


def test_a_leading_axis_seen_in_the_first_image_holds_for_the_batches_after_it(run):
    """Two boxes of two images look like one box of each, and the first image alone shows that they
    are not."""
    Path("net.py").write_text(NET)
    for number in (7, 1, 2):
        np.save(f"{number}.npy", np.full((3, 2, 2), number, np.float32))
    words = ("7.npy", "1.npy", "2.npy", "--layers", "boxes", "--device", "cpu", "-o", "out")
    ended = run("inspect", "net.py:make", *words, "--batch-size", "2")
    assert ended.code == 0, ended.err
    rows = pq.read_table("out/records.parquet").to_pylist()
    assert [(row["image"], row["shape"], row["min"], row["max"]) for row in rows] == [
        ("7", [2], -7.0, 7.0),
        ("1", [2], -1.0, 1.0),
        ("2", [2], -2.0, 2.0),
    ]


ODD = """
import torch
from torch import nn

SIZES = []

class Odd(nn.Module):
    def forward(self, x):
        return torch.cat([x, x[:1]]) if len(x) > 2 else x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.odd, self.conv = Odd(), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        SIZES.append(len(x))
        if len(x) == 1 and float(x.min()) > 2:
            raise ValueError("white")
        return self.conv(self.odd(x)).mean((2, 3))

def make():
    return Net()
"""


def test_images_stay_alone_when_one_of_them_fails_after_a_batch_was_given_up(run, monkeypatch):
    """The batch of eight shows that images cannot share a forward, and white images fail alone."""
    Path("odd.py").write_text(ODD)
    names = []
    for number in range(12):
        value = 3.0 if number in (3, 4, 10) else number / 100
        np.save(f"{number:02}.npy", np.full((3, 4, 4), value, np.float32))
        names.append(f"{number:02}.npy")
    monkeypatch.syspath_prepend(".")
    words = ("--layers", "odd", "--device", "cpu", "-o", "out", "--on-error", "skip")
    ended = run("inspect", "odd:make", *names, *words)
    assert ended.code == 6, ended.err
    odd = import_module("odd")
    # whether the model takes the first image, in which operation it ends, and the layout of a layer
    assert odd.SIZES[:3] == [1, 1, 1]
    assert odd.SIZES[3:6] == [1, 1, 8]  # the first image runs twice
    assert set(odd.SIZES[6:]) == {1}
    skipped = Path("out/skipped.csv").read_text().splitlines()[1:]
    assert [line.partition(",")[0] for line in skipped] == ["03.npy", "04.npy", "10.npy"]
    assert "its halves do not" not in ended.err


def test_a_model_that_fails_after_a_layer_with_a_map_is_reported(run):
    """The map of the layer is drawn over the image, although the image has no result."""
    Path("net.py").write_text(
        "import torch\n"
        "def fail(x):\n"
        "    raise ValueError('too late')\n"
        "class Fails(torch.nn.Module):\n"
        "    forward = staticmethod(fail)\n"
        "def make():\n"
        "    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), Fails())\n"
    )
    np.save("one.npy", np.zeros((3, 8, 8), np.float32))
    words = ("one.npy", "--layers", "0", "--heat", "mean", "--device", "cpu", "-o", "out")
    ended = run("inspect", "net.py:make", *words)
    assert ended.code == 4
    assert ended.err.splitlines()[-2] == "error: the model failed in 1 (Fails): too late"
    assert Path("out/layers.csv").exists()
