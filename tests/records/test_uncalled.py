"""Layers that did not run for the same reason are reported together, in a readable form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hookcli.records.uncalled import group_uncalled

REASON = "its weights are used inside {} (MultiheadAttention) without calling it"
ALIKE = "its weights are used inside the MultiheadAttention that holds it without calling it"


def told(uncalled):
    return [(group.names, group.reason) for group in group_uncalled(uncalled)]


def blocks(count):
    parents = [f"blocks.{number}.attn" for number in range(count)]
    return [(f"{parent}.out_proj", REASON.format(parent)) for parent in parents]


def test_a_few_uncalled_layers_with_one_reason_are_named():
    uncalled = [("b", "unused"), ("a", "unused"), ("c", "other"), ("d", "unused")]
    assert told(uncalled) == [("b, a, d", "unused"), ("c", "other")]


def test_one_layer_keeps_its_own_reason_and_several_share_one():
    assert told(blocks(1)) == [("blocks.0.attn.out_proj", REASON.format("blocks.0.attn"))]
    assert told(blocks(2)) == [("blocks.0.attn.out_proj, blocks.1.attn.out_proj", ALIKE)]
    assert told(blocks(12)) == [("blocks.{0-11}.attn.out_proj", ALIKE)]


def test_many_layers_share_a_name_with_the_numbers_that_differ():
    uncalled = [(f"stage2.{block}.conv{n}", "unused") for block in (0, 1) for n in (1, 3)]
    assert told([*uncalled, ("fc", "unused")]) == [("stage2.{0-1}.conv{1,3}, fc", "unused")]
    others = [(f"layers.{number}.{name}", "unused") for number in (0, 1) for name in "abcd"]
    assert told(others) == [("layers.0.a, layers.0.b, layers.0.c and 5 more", "unused")]


def test_a_shared_name_is_that_of_no_layer_that_ran():
    uncalled = [(f"blocks.{number}.skip", "unused") for number in (2, 3, 5, 6)]
    assert told(uncalled) == [("blocks.{2,3,5,6}.skip", "unused")]
    uncalled = [(name, "unused") for name in ("layer1.0", "layer1.1", "layer2.1", "layer3.1")]
    assert told(uncalled) == [("layer1.0, layer1.1, layer2.1 and 1 more", "unused")]


# The commands and the page

NETS = """
import torch
from torch import nn


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.idle = nn.ModuleList(nn.Linear(2, 2) for _ in range(5))
        self.conv = nn.Conv2d(3, 2, 1)
        self.last = nn.Linear(2, 2)

    def forward(self, x):
        return self.conv(x).mean((2, 3))
"""
WHY = "the model did not call it for this input"


@pytest.fixture
def own():
    Path("nets.py").write_text(NETS)
    np.save("a.npy", np.ones((3, 4, 4), "f4"))
    return "nets.py:Idle", "a.npy", "--layers", "conv,linear", "--device", "cpu"


def noted(err):
    return [line for line in err.splitlines() if line.startswith("not called")]


@pytest.mark.parametrize("words", [["inspect"], ["compare", "--against", "seed=1"]])
def test_each_command_groups_uncalled_layers_and_its_json_lists_each_one(own, run, words):
    ended = run(words[0], *own, *words[1:], "--format", "json")
    assert noted(ended.err) == [f"not called, 6 layers: idle.{{0-4}}, last: {WHY}"]
    labels = [*(f"idle.{number}" for number in range(5)), "last"]
    assert json.loads(ended.out)["uncalled"] == [{"layer": each, "reason": WHY} for each in labels]
