"""Models of one's own that take grey pictures: one number for the mean, and one for the spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hookcli.config import ModelRequest
from hookcli.networks.load import load_model

NET = "from torch import nn\ndef make(): return nn.Conv2d({channels}, 2, 3)\n"
WORDS = ("a.png", "--layers", "all", "--grids", "none")


@pytest.fixture(autouse=True)
def own_model():
    Path("net.py").write_text(NET.format(channels=1))
    Image.new("RGB", (40, 30), (200, 100, 50)).save("a.png")


def test_a_picture_becomes_its_brightness_and_is_normalized():
    request = ModelRequest("net.py:make", "random", device="cpu", mean=(0.5,), std=(0.2,))
    prepare = load_model(request).prepare
    picture = Image.open("a.png")
    pixels = prepare.to_pixels([picture])
    brightness = np.asarray(picture.convert("L"))[0, 0] / 255
    assert pixels.shape == prepare.nominal_shape[1:] == (1, 224, 224)
    torch.testing.assert_close(pixels, torch.full_like(pixels, (brightness - 0.5) / 0.2))


def test_a_model_whose_first_layer_takes_one_channel_gets_grey_pictures(run):
    ended = run("inspect", "net.py:make", *WORDS)
    assert ended.code == 0
    said = "input: 1x1x224x224, turned grey, scaled to 0 to 1, and not normalized; other: --size"
    assert said in ended.out


def test_a_model_that_makes_grey_itself_gets_colours(run):
    source = (
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.a = nn.Conv2d(1, 2, 1)\n"
        "    def forward(self, x):\n        return self.a({})\n"
    )
    Path("net.py").write_text(source.format("x.mean(1, keepdim=True)"))
    ended = run("inspect", "net.py:Net", *WORDS)
    assert "input: 1x3x224x224, prepared as for ImageNet" in ended.out
    Path("net.py").write_text(source.format("x[:, :2]"))  # two channels are no grey picture
    ended = run("inspect", "net.py:Net", *WORDS)
    assert (ended.code, "turned grey" in ended.err) == (4, False)
