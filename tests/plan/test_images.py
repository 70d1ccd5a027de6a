"""What must be known of a model before a run is found with the first image that can be used."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from hookcli.config import ModelRequest
from hookcli.plan.images import FoundImages
from hookcli.plan.prepare import prepare_run
from hookcli.plan.prepared import prepare_model, require_eager
from tests.configs import inspect_config

NET = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(16 * 16, 2)

    def forward(self, x):
        if x.min() < 0:
            raise ValueError("darker than black")
        x = self.conv(x)
        if x.abs().mean() > 5 and x.shape[0]:
            x = x - 1
            x *= 2
        return self.head(F.relu(x).flatten(2))
"""
WORDS = ("--device", "cpu", "--grids", "none", "--layers", "op:*", "-o", "out")


@pytest.fixture(autouse=True)
def net():
    Path("net.py").write_text(NET)


def save(name, brightness, side=16):
    np.save(name, np.full((3, side, side), brightness, np.float32))
    return name


def calls():
    with Path("out/layers.csv").open() as file:
        return [row["call_id"] for row in csv.DictReader(file)]


def test_a_model_of_a_size_of_its_own_has_operations(run):
    ended = run("inspect", "net.py:Net", save("dark.npy", 0.1), *WORDS)
    assert ended.code == 0, ended.err
    assert "not called" not in ended.err
    assert "op:relu" in calls()
    assert "op:sub" not in calls()


def test_an_operation_that_only_a_later_image_reaches_is_named(run):
    images = (save("dark.npy", 0.1), save("bright.npy", 100))
    ended = run("inspect", "net.py:Net", *images, *WORDS, "--format", "json")
    assert ended.code == 0, ended.err
    assert "op:sub" not in calls()
    reason = "it was not observed: a later image calls it, but the first one does not"
    assert f"op:mul, op:sub: {reason}\n" in ended.err
    assert json.loads(ended.out)["uncalled"] == [
        {"layer": name, "reason": reason} for name in ("op:mul", "op:sub")
    ]


@pytest.mark.parametrize("is_broken", [True, False])
def test_the_first_image_is_the_first_that_is_decoded_and_does_not_fail(run, is_broken):
    first = save("black.npy", -1)
    if is_broken:
        Path(first).write_bytes(b"\x93NUMPY")
    images = (first, save("bright.npy", 100))
    ended = run("inspect", "net.py:Net", *images, *WORDS, "--on-error", "skip")
    assert ended.code == 6, ended.err
    assert "op:sub" in calls()


def test_a_cluster_is_sent_the_first_image_that_can_be_used():
    count = 12  # of many images, each is read when it is needed
    for number in range(count):
        save(f"{number:02}.npy", 1)
    Path("00.npy").write_bytes(b"\x93NUMPY")
    files = [f"{number:02}.npy" for number in range(count)]
    model = ModelRequest("net.py:Net", weights="random", device="cpu")
    prepared = prepare_run(inspect_config(model, *files, layers=("op:*",)))
    assert prepared.model.first.source.file == "01.npy"


FREE = "from torch import nn\ndef make(): return nn.Conv2d(1, 2, 3)\n"


def test_the_page_says_that_a_tensor_file_was_not_prepared(run):
    Path("net.py").write_text(FREE)
    np.save("grey.npy", np.random.default_rng(0).random((1, 96, 90), np.float32))
    ended = run("inspect", "net.py:make", "grey.npy", *WORDS[:4], "--layers", "all", "-o", "out")
    assert ended.code == 0, ended.err
    assert "\ninput: 1x1x96x90, the values of the files as they are\n" in ended.out
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["model"]["preprocessing"] == "none: exact pixels"
    assert manifest["model"]["input_shape"] == [1, 1, 96, 90]
    assert "small" not in [finding["rule"] for finding in manifest["findings"]]
    assert "ImageNet" not in Path("out/report.html").read_text()


def test_a_worker_of_a_cluster_tries_the_row_of_a_tensor_file():
    np.save("rows.npy", np.full((12, 3, 16, 16), 100, np.float32))
    model = ModelRequest("net.py:Net", weights="random", device="cpu")
    config = inspect_config(model, "rows.npy", layers=("op:*",))
    first = prepare_run(config).model.first.source
    prepared = prepare_model(config.run, FoundImages([first], []), config.edited_side)
    assert "op:sub" in [
        each.layer.module_path for each in require_eager(prepared, "a test").runner.operations
    ]
    assert Path(first.file).name == "rows.npy"
