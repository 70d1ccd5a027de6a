"""A dead layer is told once, where it is made, with the number of layers that it kills."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

NET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dead):
        super().__init__()
        self.conv, self.act, self.drop = nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Dropout()
        self.conv.weight.data.abs_()
        self.conv.bias.data[:] = torch.tensor([0.1, 0.2, 0.3, 0.4])
        self.conv.bias.data[:dead] = -1e3

    def forward(self, x):
        return self.drop(self.act(self.conv(x)))


class Side(Block):
    def forward(self, x):
        return x + super().forward(x)


class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.stem.weight.data.abs_()
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return self.blocks(self.stem(x))


class Branches(nn.Module):
    # whose convolutions run before their activations

    def __init__(self, one, other):
        super().__init__()
        self.a, self.b = Block(0).conv, Block(0).conv
        self.a.bias.data[list(one)] = self.b.bias.data[list(other)] = -1e3
        self.first, self.second = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        return self.first(a) + self.second(b)


def branches(): return Net([Branches(range(4), range(4))])
def half_branches(): return Net([Branches((0, 1), (2, 3))])
def in_a_row(): return Net([Block(0), Block(4), Block(0), Block(0)])
def beside(): return Net([Side(4), Side(0), Block(0)])
def in_parts(): return Net([Block(0), Block(2), Side(0)])
def everywhere(): return Net([Side(1), Side(1), Side(2), Side(1)])
def twice(): return Net([Block(0), Block(1), Side(0), Side(4)])
"""


@pytest.fixture
def found(run):
    Path("net.py").write_text(NET)
    np.save("noise.npy", np.random.default_rng(0).random((3, 8, 8), np.float32))

    def find(name, *words):
        ended = run(
            *("inspect", f"net.py:{name}", "noise.npy", "--device", "cpu", "--grids", "none"),
            *("--format", "json", "--overwrite", "-o", "out", *(words or ("--layers", "all"))),
        )
        assert ended.code == 0, ended.err
        findings = json.loads(ended.out)["findings"]
        rules = ("dead", "constant", "saturated")
        return [each["sentence"] for each in findings if each["rule"] in rules]

    return find


def test_what_a_dead_layer_kills_is_counted_in_its_finding(found):
    # its dropout and its block, then four layers of each of two blocks, the row of them, the model
    assert found("in_a_row") == [
        "4 of 4 channels of blocks.1.act are zero everywhere, and so in 12 layers after it"
    ]


def test_a_layer_that_others_feed_too_is_not_counted(found):
    assert found("beside") == [
        "4 of 4 channels of blocks.0.act are zero everywhere, and so in 1 layer after it"
    ]


def test_layers_that_hold_the_same_channels_are_counted_until_they_are_mixed(found):
    assert found("in_parts") == [
        "2 of 4 channels of blocks.1.act are zero everywhere, and so in 2 layers after it"
    ]


def test_layers_of_one_role_that_lose_a_part_are_one_finding_with_the_largest(found):
    (sentence,) = found("everywhere")
    assert sentence == (
        "2 of 4 channels of blocks.2.act are zero everywhere, and so in 1 layer after it "
        "(and 3 more layers like it)"
    )


def test_a_layer_that_is_dead_as_a_whole_is_not_among_those_that_lose_a_part(found):
    assert found("twice") == [
        "4 of 4 channels of blocks.3.act are zero everywhere, and so in 1 layer after it",
        "1 of 4 channels of blocks.1.act are zero everywhere, and so in 2 layers after it",
    ]


def test_the_innermost_of_the_chosen_blocks_is_named(found):
    assert found("in_a_row", "--layers", "blocks,blocks.1,blocks.3") == [
        "4 of 4 channels of blocks.1 are zero everywhere, and so in 2 layers after it"
    ]


def test_a_convolution_that_loses_as_many_channels_as_the_one_before_loses_its_own(found):
    Path("net.py").write_text(
        "from torch import nn\n"
        "def pruned():\n"
        "    net = nn.Sequential(*(nn.Conv2d(n, 4, 1) for n in (3, 4, 4)))\n"
        "    for conv in net[:2]: conv.weight.data[:2] = 0\n"
        "    return net\n"
    )
    assert found("pruned") == ["2 of 4 channels of 0 hold a single value (like 1)"]


@pytest.mark.parametrize(("name", "dead"), [("branches", 4), ("half_branches", 2)])
def test_the_activations_of_two_branches_do_not_explain_each_other(found, name, dead):
    said = {each.partition(" are zero")[0] for each in found(name) if "zero" in each}
    assert said == {f"{dead} of 4 channels of blocks.0.{name}" for name in ("first", "second")}


@pytest.mark.parametrize(
    ("kind", "bias", "rule", "does"),
    [
        ("ReLU", -1, "dead", "are zero everywhere"),
        ("ReLU6", 9, "saturated", "stay at an end of their activation"),
    ],
)
@pytest.mark.parametrize("number", [7, 16])
def test_a_constant_convolution_hides_no_other_rule(found, run, kind, bias, rule, does, number):
    Path("net.py").write_text(
        "from torch import nn\n"
        "def made():\n"
        f"    net = nn.Sequential(nn.Conv2d(3, 16, 1), nn.{kind}(), nn.Identity())\n"
        "    net[0].weight.data.abs_(); net[0].bias.data[:] = 0.1\n"
        f"    net[0].weight.data[:{number}], net[0].bias.data[:{number}] = 0, {bias}\n"
        "    return net\n"
    )
    told = f"{number} of 16 channels of 1 {does}"
    assert [each for each in found("made") if each.partition(", and so")[0] == told]
    words = ("--layers", "all", "--grids", "none", "--overwrite", "-o", "out", "-q")
    assert run("inspect", "net.py:made", "noise.npy", *words, "--fail-on", rule).code == 7
