"""Own models through the commands: tokens, inferred layouts, and features instead of classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hookcli.reading.load import load_run

MODEL = """
import torch
from torch import nn

class Scale(nn.Module):
    def forward(self, x):
        return x * 2

class Patches(nn.Module):
    '''Four patches of an 8 x 8 image, two tokens before them, and one after them.'''

    def __init__(self):
        super().__init__()
        self.cut, self.linear, self.scale = nn.Conv2d(3, 5, 4, stride=4), nn.Linear(5, 5), Scale()
        self.norm = nn.LayerNorm(5)
        self.config = type("Config", (), {"num_detection_tokens": 1})()

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([x[:, :2] + 9, x, x[:, :1] - 9], 1)
        return self.norm(self.scale(self.linear(x)).mean(1))

class Odd(nn.Module):
    '''Seven tokens, which are no picture, through a layer whose type tells nothing.'''

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 5), Scale()

    def forward(self, x):
        return self.scale(self.linear(x.flatten(2).transpose(1, 2)[:, :7]))
"""
ON_CPU = ("--device", "cpu")


@pytest.fixture(autouse=True)
def files():
    Path("net.py").write_text(MODEL)
    np.save("a.npy", np.random.default_rng(0).random((3, 8, 8), np.float32))


def test_tokens_that_are_no_patches_are_left_out_of_the_maps(run):
    words = ("net.py:Patches", "a.npy", "--layers", "scale", *ON_CPU, "--save", "tensors")
    ended = run("inspect", *words, "-o", "whole", "--format", "json")
    assert ended.code == 0, ended.err
    (layer,) = json.loads(ended.out)["layers"]
    assert (layer["shape"], layer["layout"]) == ([1, 7, 5], "NLC")
    assert run("inspect", *words, "--pool", "2", "-o", "maps").code == 0
    whole, maps = (load_run(folder)["scale"] for folder in ("whole", "maps"))
    assert maps.tolist() == whole[:, 2:6].transpose(0, 2, 1).reshape(1, 5, 2, 2).tolist()
    (grid,) = json.loads(Path("maps/report.json").read_text())["grids"]
    assert grid["places"]  # it is made of tiles, not of bars


def test_a_layout_that_was_inferred_says_so(run):
    words = ("net.py:Odd", "a.npy", "--layers", "leaf", *ON_CPU, "-o", "out")
    layers = json.loads(run("inspect", *words, "--format", "json").out)["layers"]
    assert [(each["layout"], each["layout_note"]) for each in layers] == [
        ("NLC", ""),
        ("NLC", "inferred from inputs or parts"),
    ]
    assert layers[1]["channels"] == 5
    assert "NLC (inferred)" in run("inspect", *words, "--overwrite").out
    assert "NLC, inferred from inputs or parts" in Path("out/report.html").read_text()


def test_an_edit_of_channels_knows_where_an_inferred_layout_has_them(run):
    words = ("net.py:Odd", "a.npy", "--layers", "scale", *ON_CPU, "--edit", "scale{3}:zero")
    ended = run("inspect", *words, "--format", "json", "-o", "out")
    assert ended.code == 0, ended.err
    (layer,) = json.loads(ended.out)["layers"]
    assert (layer["zero_fraction"], layer["dead_channels"]) == (0.2, 1)


def test_a_backbone_has_features_in_the_table_and_on_the_page(run):
    ended = run("inspect", "net.py:Patches", "a.npy", "--layers", "cut", *ON_CPU, "-o", "out")
    assert "a.npy: 5 features, no classes\n" in ended.out
    assert "<li>5 features, no classes</li>" in Path("out/report.html").read_text()
