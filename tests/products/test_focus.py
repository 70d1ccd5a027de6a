"""``--focus``: a box of the image, followed into what the network sees, and the channels that fire
in it."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as fn

from hookcli.activations.feature_maps import rank_by_focus
from hookcli.config import ModelRequest
from hookcli.errors import RequestError
from hookcli.images.read import ImageContent, ImageSource
from hookcli.networks.load import build_skeleton, load_model
from hookcli.products.focus import describe_focus, find_focus


def box_in(name, picture, box, **request):
    inside, _outside = build_skeleton(ModelRequest(name, **request)).find_box(picture, box)
    return inside


def both(inside):
    return torch.stack([inside, 1 - inside])


def edges(mask):
    rows, columns = (mask >= 0.5).any(1).nonzero(), (mask >= 0.5).any(0).nonzero()
    return [int(v) for v in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)]


def test_the_box_is_that_of_a_picture_prepared_by_torchvision():
    drawn = torch.zeros(3, 300, 451)
    drawn[:, 60:160, 200:260] = 1
    expected = fn.center_crop(fn.resize(drawn, [256], antialias=True), [224])[0]
    mask = box_in("resnet18", (451, 300), (200, 60, 60, 100))
    assert (mask - expected).abs().max() < 0.02


def test_padding_is_neither_inside_nor_outside_of_the_box():
    loaded = load_model(ModelRequest("fasterrcnn_mobilenet_v3_large_320_fpn", weights="random"))
    # short side 320 of 100 by 70: 457 by 320, filled up to 480 by 320
    inside, outside = loaded.find_box((100, 70), (50, 0, 50, 70))
    assert inside.shape == (320, 480)
    covered = (inside + outside > 0).all(0)
    assert int(covered.sum()) == 457
    assert not covered[457:].any()


def test_a_box_may_reach_the_right_and_the_lower_edge_of_the_image():
    content = ImageContent("", (8, 6), pixels=np.zeros((3, 6, 8), np.float32))
    source = ImageSource("zeros", "zeros.npy", kept=content)
    inside, _outside = find_focus((5, 2, 3, 4), build_skeleton(ModelRequest("resnet18")), [source])
    assert edges(inside) == [5, 2, 8, 6]


@pytest.mark.parametrize("share", [0.24, 0.25])
def test_a_box_is_cut_away_if_no_pixel_has_a_quarter_of_it(share):
    content = ImageContent("", (8, 6), pixels=np.zeros((3, 6, 8), np.float32))
    shares = both(torch.full((3, 4), share))
    loaded: Any = SimpleNamespace(find_box=lambda *_args, **_words: shares)
    with pytest.raises(RequestError) if share < 0.25 else nullcontext():
        assert find_focus((0, 0, 1, 1), loaded, [ImageSource("a", "a.npy", kept=content)]) is shares


def test_the_box_is_drawn_at_its_shares_of_the_picture():
    inside = torch.zeros(4, 8)
    inside[1:3, 2:8] = 1
    assert describe_focus((2, 1, 6, 2), both(inside)).seen == (2 / 8, 1 / 4, 6 / 8, 2 / 4)


def test_channels_are_ranked_by_mean_inside_less_mean_outside_in_spreads():
    focus = torch.zeros(4, 4)
    focus[:2, :2] = 1
    inside, everywhere, outside = torch.zeros(4, 4), torch.ones(4, 4), torch.ones(4, 4)
    inside[:2, :2] = 4.0
    outside[:2, :2] = 0.0
    scores = rank_by_focus(torch.stack([inside, everywhere, outside]), both(focus))
    # a quarter holds 4: mean 1, variance (9 + 3) / 4 = 3; the other way round the spread is sqrt(3)
    # / 4
    assert scores.tolist() == pytest.approx([4 / 3**0.5, 0.0, -1 / (3**0.5 / 4)])


@pytest.fixture
def photo():
    Image.linear_gradient("L").convert("RGB").save("photo.png")  # 256 by 256
    return "photo.png"


ALL = "all that the network sees, and leaves nothing to compare with"
WORDS = ("--weights", "random", "--size", "64", "--layers", "conv1", "-o", "run")


def test_the_grid_the_page_and_stdout_show_the_channels_of_the_box(run, photo):
    ended = run("inspect", "resnet18", photo, *WORDS, "--focus", "100,40,40,40")
    assert ended.code == 0
    heading = "channels that fire more inside the box than outside, in standard deviations:\n"
    assert f"{heading}  conv1: channel " in ended.out
    document = json.loads(Path("run/report.json").read_text())
    scores = document["grids"][0]["score"]
    assert scores == sorted(scores, reverse=True)
    assert document["focus"]["box"] == [100, 40, 40, 40]
    assert "What fires inside the box" in Path("run/report.html").read_text()


def focused(run, channels):
    words = (*WORDS, "--overwrite", "--focus", "100,40,40,40", "--channels", channels)
    ended = run("inspect", "resnet18", "photo.png", *words)
    (listed,) = re.findall(r"^  conv1: (.*(?:\n {2,}.*)*)", ended.out, re.MULTILINE)
    page = Path("run/report.html").read_text().partition('<section id="focus">')[2]
    chips = re.findall(r'channel (\d+) <span class="dim">([^<]+)</span>', page)
    (grid,) = json.loads(Path("run/report.json").read_text())["grids"]
    scores = dict(zip(grid["channels"], grid["score"], strict=True))
    return " ".join(listed.split()), [(int(channel), score) for channel, score in chips], scores


def test_channels_that_fire_less_inside_are_not_listed(run, photo):
    _listed, _chips, scores = focused(run, "0-63")
    order = sorted(scores, key=scores.get)
    assert scores[order[2]] < 0 < scores[order[-1]]
    listed, chips, _scores = focused(run, ",".join(map(str, [*order[:3], order[-1]])))
    assert listed == f"channel {order[-1]} ({scores[order[-1]]:.2f})"
    assert chips == [(order[-1], f"{scores[order[-1]]:.2f}")]
    listed, chips, _scores = focused(run, ",".join(map(str, order[:3])))
    assert (listed, chips) == ("none fires more inside", [])
    assert "none fires more inside" in Path("run/report.html").read_text()


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ("0,0,8,8", "--focus 0,0,8,8 is cut away: the network sees the middle of the image"),
        ("250,0,10,10", "--focus 250,0,10,10 is not inside the image, which is 256 by 256 pixels"),
        ("1,2,3", "--focus cannot read '1,2,3'"),
        ("0,0,256,256", f"--focus covers {ALL}"),
        ("0,0,0,5", "--focus needs a width and a height of at least 1"),
    ],
)
def test_a_box_that_cannot_be_seen_is_refused(run, photo, box, message):
    ended = run("inspect", "resnet18", photo, *WORDS, "--focus", box)
    assert ended.code == 2
    assert f"error: {message}\n" in ended.err
    assert not Path("run").exists()


def test_a_box_is_in_one_image(run, photo):
    np.save("rows.npy", np.zeros((2, 3, 64, 64), np.float32))
    for images in ([photo, photo], ["rows.npy"]):
        ended = run("inspect", "resnet18", *images, *WORDS, "--focus", "1,1,9,9")
        assert (ended.code, "--focus is a box in one image" in ended.err) == (2, True)
