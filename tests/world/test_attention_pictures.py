"""The pictures of attention in a run folder, against the probabilities that the run saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import hookcli
from tests.conftest import PHOTOS

MODEL = "tests.world.test_attention_pictures:Attends"


class Attends(nn.Module):
    """Each of 7 by 7 patches and a class token look at all of them, with 3 heads that differ."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 3, 32, 32)
        self.first = nn.Parameter(torch.zeros(1, 1, 3))
        self.attention = nn.MultiheadAttention(3, 3, batch_first=True)
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), 1, 3), tokens], 1)
        return self.fc(self.attention(tokens, tokens, tokens)[0][:, 0])


def attend(run):
    words = ("--layers", "fc", "--attention", "all", "--save", "attention", "--device", "cpu")
    assert run("inspect", MODEL, PHOTOS / "cat.png", *words, "-o", "out").code == 0
    (maps,) = json.loads(Path("out/report.json").read_text())["attention_maps"]
    return maps


def test_the_blocks_of_the_picture_are_the_maps_of_queries_and_class_token(run):
    maps = attend(run)
    saved = np.asarray(hookcli.load_run("out")["attention:attention"])
    grids = [maps[name] for name in ("patch_grid", "query_grid", "map_grid")]
    assert (maps["heads"], grids, maps["is_thinned"]) == (3, [[7, 7]] * 3, False)
    levels = np.asarray(Image.open(Path("out", maps["file"])))
    assert levels.shape == ((7 + 1) * 3 * 7, 7 * 7)
    for row, column, head in np.ndindex(7, 7, 3):
        seen = saved[0, 0, head, 1 + 7 * row + column, 1:].reshape(7, 7)  # without the class token
        top, left = 7 * (3 * row + head), 7 * column
        wanted = 255 * seen / seen.max()
        assert np.abs(levels[top : top + 7, left : left + 7] - wanted).max() <= 0.51
    for head in range(3):
        seen = saved[0, 0, head, 0, 1:].reshape(7, 7)
        top = 7 * (3 * 7 + head)
        assert np.abs(levels[top : top + 7, :7] - 255 * seen / seen.max()).max() <= 0.51
    assert not levels[7 * 3 * 7 :, 7:].any()
