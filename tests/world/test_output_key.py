"""``--output-key``: which of several outputs predictions and scores read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

NET = """
from dataclasses import dataclass
from torch import nn
import torch


@dataclass
class Out:
    pred: object
    aux: object


class Net(nn.Module):
    '''The outputs are biases, whatever the picture: three classes, two classes, and a map.'''

    def __init__(self, form):
        super().__init__()
        self.form, self.three, self.two = form, nn.Linear(3, 3), nn.Linear(3, 2)
        self.map = nn.Conv2d(3, 2, 1)
        for layer in (self.three, self.two, self.map):
            nn.init.zeros_(layer.weight)
            layer.bias.data = torch.arange(len(layer.bias)).float()

    def forward(self, x):
        means = x.mean((2, 3))
        return self.form(means, self.three(means), self.two(means), self.map(x))


def alone(): return Net(lambda means, three, two, map: three)
def in_tuple(): return Net(lambda *outputs: outputs)
def in_dict(): return Net(lambda means, three, two, map: {"pred": three, "aux": [two], "map": map})
def one_in_dict():
    net = Net(lambda means, three, two, map: {"sick": three[:, :1], "features": means})
    net.three = nn.Linear(3, 1)
    return net
def in_dataclass(): return Net(lambda means, three, two, map: Out(three, two))
"""
WORDS = ("--layers", "linear", "--device", "cpu", "--grids", "none")
TWO = [1 / (1 + math.e), math.e / (1 + math.e)]


@pytest.fixture(autouse=True)
def files():
    Path("net.py").write_text(NET)
    np.save("zeros.npy", np.zeros((2, 3, 4, 4), np.float32))


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("in_tuple", "2", TWO),
        ("in_tuple", "3", [0.0, 1.0]),
        ("in_dict", "aux.0", TWO),
        ("in_dataclass", "aux", TWO),
    ],
)
def test_predictions_are_those_of_the_chosen_output(run, name, key, values):
    words = ("inspect", f"net.py:{name}", "zeros.npy", *WORDS, "--format", "json")
    ended = run(*words, "--output-key", key)
    assert ended.code == 0, ended.err
    for image in json.loads(ended.out)["images"]:
        found = {each["index"]: each["value"] for each in image["predictions"]}
        assert found == {index: pytest.approx(value) for index, value in enumerate(values) if value}
    assert not any(image["predictions"] for image in json.loads(run(*words).out)["images"])


@pytest.mark.parametrize(("key", "target", "score"), [("1", "2", 2.0), ("3", "1", 1.0)])
def test_scores_are_those_of_the_chosen_output(run, key, target, score):
    words = ("--output-key", key, "--target", target, "--format", "json")
    ended = run("gradients", "net.py:in_tuple", "zeros.npy", *WORDS, *words)
    assert ended.code == 0, ended.err
    assert [each["score"]["value"] for each in json.loads(ended.out)["images"]] == [score, score]


@pytest.mark.parametrize(
    ("name", "key", "hint"),
    [
        ("net.py:in_tuple", "4", "it returns 0, 1, 2, 3"),
        ("net.py:alone", "0", "leave it out: the model does not return several"),
    ],
)
def test_a_key_that_the_output_lacks_is_refused_before_anything_is_written(run, name, key, hint):
    ended = run("inspect", name, "zeros.npy", *WORDS[2:], "--output-key", key, "-o", "out")
    assert (ended.code, Path("out").exists()) == (2, False)
    assert f"--output-key {key}: the model returns no such tensor\nhint: {hint}" in ended.err


@pytest.mark.parametrize("name", ["in_tuple", "one_in_dict"])
def test_the_tensors_of_an_output_that_nothing_reads_are_named(run, name):
    ended = run("inspect", f"net.py:{name}", "zeros.npy", *WORDS)
    keys = {"in_tuple": "0, 1, 2, 3", "one_in_dict": "sick, features"}[name]
    assert f"choose a tensor with --output-key: {keys}" in ended.err
    assert "the model has one output" not in ended.err
