"""Tests of Grad-CAMs: blurring, random maps, random weights, and the choice of the layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from hookcli.networks.scores import Scorer, ScoreTensor
from hookcli.passes.eager import EagerRunner
from hookcli.passes.judge_cams import Judge, blur, randomise_top
from hookcli.records.images import Score
from hookcli.records.pictures import area
from tests.verbs.test_gradients import document

CORNER = torch.zeros(8, 8)
CORNER[:4, :4] = 1


class Corner(nn.Module):
    """The score is how far the upper left quarter differs from grey."""

    def forward(self, x):
        return (x[:, :, :32, :32] ** 2).mean((1, 2, 3))


@pytest.fixture
def judge():
    board = (torch.arange(64) % 2 * 2 - 1).float()
    pixels = (board[:, None] * board[None]).expand(1, 3, 64, 64).clone()
    runner = EagerRunner(Corner().eval(), ())

    def score(output: Any) -> ScoreTensor:
        return ScoreTensor(output[0], Score("sum", None))

    return Judge.of(runner, Scorer(score, (score,)), pixels)


def test_a_map_of_what_the_score_depends_on_takes_it_first(judge):
    found = judge.test(CORNER, 1 - CORNER)
    assert found.deletion[0] == found.insertion[-1] == 1
    assert found.deletion[3] < 0.05  # the quarter is among the first 30 %
    assert found.insertion[3] > 0.95
    assert found.randomised[5] > 0.95  # three quarters come before it
    assert found.taken > 0.3 > 0.15 > found.at_random > 0.05
    assert not found.is_chance
    assert area(found.deletion) < 0.2 < 0.4 < area(found.random)


def test_chance_is_the_fastest_of_nine_random_maps_and_their_negatives(judge):
    generator = torch.Generator().manual_seed(0)
    noise = [torch.rand(8, 8, generator=generator) for _ in range(9)]
    curves = [judge.test(sign * each, None).deletion for each in noise for sign in (1, -1)]
    fastest = min(sum(curve[1:5]) + (curve[0] + curve[5]) / 2 for curve in curves) / 5
    assert judge.test(CORNER, None).chance == pytest.approx(fastest, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_map_is_no_better_than_chance(judge, seed):
    noise = torch.rand(8, 8, generator=torch.Generator().manual_seed(10 + seed))
    assert judge.test(1 - CORNER, None).is_chance
    found = judge.test(noise, None)
    assert abs(area(found.deletion) - area(found.random)) < 0.2
    assert found.randomised == ()


def test_the_blur_keeps_what_is_even_and_takes_what_is_fine():
    assert torch.allclose(blur(torch.full((1, 3, 40, 30), 0.7)), torch.tensor(0.7))
    clip = torch.rand(1, 3, 4, 30, 30)
    torch.testing.assert_close(blur(clip)[0, :, 2], blur(clip[0, :, 2][None])[0])
    assert blur(torch.tensor([[-1.0, 1] * 20] * 40)[None, None]).abs().max() < 0.2


def test_the_layer_and_the_later_ones_get_other_weights_and_the_model_keeps_its_own():
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1), nn.Linear(2, 2))
    before = {name: each.clone() for name, each in model.named_parameters()}
    made = dict(randomise_top(model, {"1"}).named_parameters())
    same = {name: torch.equal(made[name], old) for name, old in before.items()}
    assert {name for name, is_same in same.items() if is_same} == {"0.weight", "0.bias"}
    after = dict(model.named_parameters())
    assert all(torch.equal(after[name], old) for name, old in before.items())


def test_pruned_weights_are_drawn_again_too():
    model: Any = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1))
    prune.l1_unstructured(model[1], "weight", 0.5)
    made: Any = randomise_top(model, {"1"})
    x = torch.rand(1, 3, 4, 4)
    assert not torch.equal(made(x), model(x))
    torch.testing.assert_close(made[1].weight, made[1].weight_orig * made[1].weight_mask)
    assert not torch.equal(made[1].weight_orig, model[1].weight_orig)


NETS = """
import torch
from torch import nn


def pooled():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        layer = dict(d_model=8, nhead=2, dim_feedforward=8, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y)[0]


class Queries(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.attn, self.head = nn.Conv2d(3, 4, 1), nn.Module(), nn.Linear(4, 2)
        self.attn.v = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.head(self.attn.v(self.norm(x)).mean((2, 3)))


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.auto, self.last, self.fc = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1), nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(self.last(self.auto(x)).mean((2, 3)))


def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2))
"""


@pytest.fixture
def nets():
    Path("nets.py").write_text(NETS)
    np.save("a.npy", np.random.default_rng(0).normal(size=(3, 16, 16)).astype("f4"))


def cams(run, net, *words):
    ended = run("gradients", f"nets.py:{net}", "a.npy", "--grids", "none", *words, "-o", "out")
    assert ended.code == 0, ended.err
    return [heat["call_id"] for heat in document()["heats"]], ended


@pytest.mark.parametrize(
    ("net", "layer", "head", "places"),
    [
        ("pooled", "0", "3", "12x12"),
        ("Tokens", "blocks.1.norm", "head", "4x4"),  # later, only the class token matters
        ("Queries", "norm", "head", "16x16"),
        ("Named", "last", "fc", "16x16"),
    ],
)
def test_auto_chooses_the_last_layer_with_places_that_matter(run, nets, net, layer, head, places):
    found, ended = cams(run, net, "--cam", "auto", "--no-judge")
    assert found == [layer]
    why = f"the last layer before {head} with places that the score depends on"
    assert f"--cam: {layer}, {places} places: {why}" in ended.err.splitlines()


def test_path_auto_names_a_module_called_auto(run, nets):
    assert cams(run, "Named", "--cam", "path:auto,auto", "--no-judge")[0] == ["auto", "last"]


def test_a_model_without_places_has_no_layer_for_auto(run, nets):
    ended = run("gradients", "nets.py:flat", "a.npy", "--cam", "auto", "--layers", "linear")
    assert ended.code == 2
    assert "error: --cam auto: no layer before the head has places" in ended.err
    assert ended.err.endswith("hint: name a layer: --cam FORM\n")


def test_the_table_says_what_the_hottest_places_take(run, nets):
    _, ended = cams(run, "pooled", "--cam", "auto")
    assert "hottest 10%   random 10%" in ended.out
    assert "the share of the score that blurring these places takes" in ended.out
    (heat,) = document()["heats"]
    assert len(heat["test"]["deletion"]) == len(heat["test"]["random"]) == 11
    score = torch.tensor(heat["test"]["deletion"][0])
    (best, *_) = document()["images"][0]["predictions"]
    torch.testing.assert_close(score, torch.tensor(best["value"]), rtol=1e-5, atol=0)
    assert "10 % takes" in Path("out/report.html").read_text()
    _, ended = cams(run, "pooled", "--cam", "auto", "--no-judge", "--overwrite")
    assert "hottest 10%" not in ended.out
