"""The second pass of a run's first image: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import hookcli
from hookcli.passes.second_pass import _is_same
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layer_records import LayerRecord, TensorStats
from hookcli.records.layouts import UNKNOWN
from tests.toy_models import Between

PIXELS = torch.linspace(-1, 1, 3 * 4 * 4).view(1, 3, 4, 4)
STATS = TensorStats((1, 4), "float32", mean=0.0, std=1.0, min=-2.0, max=2.0, zero_fraction=0.0)


def find(net, images=PIXELS, **words):
    found = hookcli.inspect(net, images, layers="all", grids="none", **words)
    return [each for each in found.findings if each.rule == "not-deterministic"]


class Grows(nn.Module):
    """Keeps a list, a buffer and a number that grow by each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.kept, self.number = [], 0

    def forward(self, x):
        self.calls += 1
        self.kept.append(0)
        self.number += 1
        return x * (self.calls + len(self.kept) + self.number)


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: functional.dropout(x, training=True),
        lambda x: x * random.random(),
        lambda x: x * float(np.random.rand()),
        lambda x: x + torch.rand(()),
        Grows(),
    ],
)
def test_the_first_call_with_another_result_is_found(fault):
    (finding,) = find(Between(fault))
    assert (finding.layer, finding.number, finding.threshold) == ("fault", 3.0, 0)
    assert finding.sentence == (
        "fault gave another result when the first image ran again (and 2 more calls): "
        "dropout active in eval mode? random numbers? state?"
    )


def test_an_output_that_no_chosen_layer_shows_is_found():
    net = Between(lambda x: functional.dropout(x, training=True))
    found = hookcli.inspect(net, PIXELS, layers=next(net.named_children())[0], grids="none")
    (finding,) = (each for each in found.findings if each.rule == "not-deterministic")
    assert finding.layer == "(model)"
    assert finding.sentence.startswith("(model) gave another result when the first image ran again")


def test_values_that_only_change_places_are_found():
    """All figures are the same; the sketch is not."""
    rolled = []

    def roll(x):
        rolled.append(0)
        return x.roll((len(rolled),) * 2, (2, 3))

    (finding,) = find(Between(roll))
    assert finding.layer == "fault"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda x: x, {}),
        (lambda x: x / 0 * 0, {}),  # NaN
        (nn.Dropout(), {"mode": "train"}),
        (nn.Dropout(), {}),
        (nn.BatchNorm2d(4), {"mode": "train"}),
    ],
)
def test_a_steady_model_has_no_finding(fault, words):
    assert find(Between(fault), **words) == []


def test_a_model_that_fails_in_its_second_call_runs_once():
    calls, all_calls = [], 0

    def fail(x):
        calls.append(0)
        if len(calls) == all_calls:
            raise ValueError("once")
        return x

    find(Between(fail))
    all_calls = len(calls)
    calls.clear()
    assert find(Between(fail)) == []
    assert len(calls) == all_calls


def test_the_model_and_the_random_numbers_are_those_after_one_pass():
    """The second of two images gets what it would get without a second pass of the first."""
    seen = []

    class Draws(Grows):
        def forward(self, x):
            drawn = torch.rand(()).item(), random.random(), np.random.rand()
            seen.append((self.number, len(self.kept), self.calls.item(), *drawn))
            return super().forward(x)

    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    hookcli.inspect(Between(Draws()), torch.cat([PIXELS, PIXELS]), grids="none", batch_size=1)
    passes = seen[-3:]
    assert [each[:3] for each in passes] == [(0, 0, 0), (1, 1, 1), (1, 1, 1)]
    assert passes[1] == passes[2]
    assert passes[0][3:] != passes[1][3:]


def test_pixels_that_the_model_overwrites_are_given_to_it_again():
    assert find(nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 2, 1))) == []
    twice = nn.Sequential(nn.Identity(), nn.Conv2d(3, 2, 1))
    twice[0].forward = lambda x: x.add_(1)
    assert find(twice) == []


def test_a_run_ends_with_7_if_the_rule_is_to_fail(run):
    Path("net.py").write_text(
        "import torch\nclass Net(torch.nn.Conv2d):\n"
        "    def __init__(self):\n        super().__init__(3, 2, 1)\n"
        "    def forward(self, x):\n        return super().forward(x) + torch.rand(())\n"
    )
    np.save("a.npy", np.ones((3, 4, 4), "f4"))
    words = ("inspect", "net.py:Net", "a.npy", "--layers", "all", "--device", "cpu", "-o", "out")
    ended = run(*words, "--fail-on", "not-deterministic")
    assert ended.code == 7
    finding = json.loads(Path("out/report.json").read_text())["findings"][0]
    assert (finding["rule"], finding["layer"]) == ("not-deterministic", "(model)")
    assert "(model) gave another result" in Path("out/report.html").read_text()
    ended = run(*words, "--rule", "not-deterministic=1", "--overwrite")
    assert "not-deterministic" not in ended.out


@pytest.mark.parametrize(
    ("mean", "is_exact", "same"),
    [(0, True, True), (1e-7, True, False), (1e-5, False, True), (1e-4, False, False)],
)
def test_elsewhere_than_on_a_cpu_the_last_digits_may_differ(mean, is_exact, same):
    one = LayerRecord("a", Call(LayerInfo("conv", "Conv2d")), UNKNOWN, STATS)
    two = replace(one, stats=replace(STATS, mean=float(mean)))
    assert _is_same(one, two, is_exact) is same
