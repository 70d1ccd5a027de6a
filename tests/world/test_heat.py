"""``--heat``: one map of each layer over the image, with true values at the ends of its scale."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import hookcli
from tests.conftest import interrupted_after
from tests.world.test_folders import assert_same_folders

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, 6, 4, 4), nn.ReLU(inplace=True)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 2)

    def forward(self, x):
        x = self.act(self.conv(x) * 3)
        x = x + self.act(x)  # a second call
        return self.head(self.norm(x.flatten(2).mT).mean(1))


def make():
    torch.manual_seed(0)
    return Net()
"""
NUMPY = {
    "max": lambda values: values.max(0),
    "l2": lambda values: np.sqrt((values**2).sum(0)),
}
SIZE = ("--size", "32", "--resize", "32", "--device", "cpu", "--threads", "1")


@pytest.fixture
def inspect(run):
    Path("net.py").write_text(NET)

    def command(*words, code=0, images="photos"):
        words = ("inspect", "net.py:make", images, *SIZE, "--layers", "leaf", *words)
        ended = run(*words)
        assert ended.code == code, ended.err
        return ended

    return command


def draw_photos(count):
    Path("photos").mkdir()
    dice = np.random.default_rng(0)
    for number in range(count):
        pixels = dice.integers(0, 255, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(f"photos/p{number:02}.png")


def ends_of_scale(file):
    every = ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314
    words = [each.text for each in every if each.text]
    return [float(words[-2]), float(words[-1])]


@pytest.mark.parametrize("of", NUMPY)
def test_the_scale_has_the_extremes_of_the_tensors_of_each_call_and_image(inspect, of):
    draw_photos(3)
    words = ("--grids", "none", "--save", "tensors", "--picture-format", "svg", "-o", "out")
    inspect("--heat", of, *words, "--batch-size", "2")
    loaded = hookcli.load_run("out")
    files = {"conv": "001_conv", "act": "002_act", "act#1": "003_act#1", "norm": "004_norm"}
    for call_id, file in files.items():
        for image in range(3):
            values = np.asarray(loaded[call_id][image], np.float64)
            maps = values.T if call_id == "norm" else values  # tokens hold their channels last
            heat = NUMPY[of](maps)
            drawn = ends_of_scale(f"out/heat/p{image:02}/{file}.svg")
            assert drawn == pytest.approx([heat.min(), heat.max()], rel=6e-3, abs=1e-6)
            assert Path(f"out/heat/p{image:02}/{file}.png").exists()


def test_layers_without_places_are_named_with_the_reason(inspect):
    draw_photos(1)
    ended = inspect("--heat", "max", "--grids", "none", "-o", "out")
    assert (
        "warning: --heat: no map of head: one value per channel, without height and width"
        in ended.err
    )
    document = json.loads(Path("out/report.json").read_text())
    assert document["heatless"] == {
        "head": "one value per channel, without height and width",
    }
    assert [(each["kind"], each["call_id"]) for each in document["heats"]] == [
        ("max", call_id) for call_id in ("conv", "act", "act#1", "norm")
    ]
    page = Path("out/report.html").read_text()
    assert "Not over the image, since they have no places on it:" in page
    assert page.count('data-heat="') == 4 + 1  # and once in the script


def test_grad_cams_are_in_the_order_in_which_their_layers_were_named(run):
    Path("net.py").write_text(NET.replace("inplace=True", ""))
    draw_photos(1)
    words = ("--cam", "Conv2d,act", "--layers", "head", "--grids", "none", "-o", "out")
    assert run("gradients", "net.py:make", "photos", *SIZE, *words).code == 0
    heats = json.loads(Path("out/report.json").read_text())["heats"]
    assert [heat["call_id"] for heat in heats] == ["conv", "act#1", "act"]


@pytest.mark.usefixtures("small_parts")
def test_a_resumed_run_and_one_of_single_images_have_the_same_pictures(inspect):
    draw_photos(10)
    inspect("--heat", "mean", "--grids", "none", "-o", "whole")
    with interrupted_after(chunks=1):
        inspect("--heat", "mean", "--grids", "none", "-o", "halves", code=130)
    inspect("--heat", "mean", "--grids", "none", "-o", "halves", "--resume")
    assert_same_folders(Path("whole"), Path("halves"))
    assert len([*Path("whole/heat").rglob("*.png")]) == 10 * 4
    other = inspect("--heat", "max", "--grids", "none", "-o", "halves", "--resume", code=2)
    assert "--heat" in other.err
