"""Chunks of images through a model, and what the first image shows of it."""

from __future__ import annotations

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
