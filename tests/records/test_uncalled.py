"""Layers that did not run for the same reason are reported together, in a readable form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hookcli.records.uncalled import group_uncalled

REASON = "its weights are used inside {} (MultiheadAttention) without calling it"
ALIKE = "its weights are used inside the MultiheadAttention that holds it without calling it"


def told(uncalled, chosen=()):
    return [(group.names, group.reason) for group in group_uncalled(uncalled, chosen)]


def attention(*parents):
    return [(f"{parent}.out_proj", REASON.format(parent)) for parent in parents]


def blocks(*numbers):
    return attention(*(f"blocks.{number}.attn" for number in numbers))


def test_a_few_uncalled_layers_with_one_reason_are_named():
    uncalled = [("b", "unused"), ("a", "unused"), ("c", "other"), ("d", "unused")]
    assert told(uncalled) == [("b, a, d", "unused"), ("c", "other")]


def test_one_layer_keeps_its_own_reason_and_several_share_one():
    assert told(blocks(7)) == [("blocks.7.attn.out_proj", REASON.format("blocks.7.attn"))]
    assert told(blocks(0, 1)) == [("blocks.0.attn.out_proj, blocks.1.attn.out_proj", ALIKE)]


def test_many_layers_are_a_glob_where_it_matches_no_other():
    assert told(blocks(*range(12)), ["head", "blocks.0.attn"]) == [
        ("blocks.*.attn.out_proj", ALIKE)
    ]


def test_many_uncalled_layers_are_counted_if_a_glob_would_match_a_layer_that_ran():
    names = "blocks.0.attn.out_proj, blocks.1.attn.out_proj, blocks.2.attn.out_proj and 9 more"
    assert told(blocks(*range(12)), ["blocks.12.attn.out_proj"]) == [(names, ALIKE)]


def test_many_uncalled_layers_are_counted_if_the_other_choices_are_unknown():
    (group,) = group_uncalled(blocks(*range(5)))
    assert group.names.endswith("blocks.2.attn.out_proj and 2 more")
    assert group.layers == tuple(f"blocks.{number}.attn.out_proj" for number in range(5))


def test_a_number_that_all_names_share_is_not_replaced_by_a_star():
    uncalled = [(f"stage2.{block}.conv{n}", "unused") for block in (0, 1) for n in (1, 3)]
    assert told(uncalled, ["stage1.0.conv1"]) == [("stage2.*.conv*", "unused")]


def test_stars_of_neighbouring_parts_are_one_unless_it_would_match_more():
    uncalled = [(f"stages.{a}.{b}.proj", "unused") for a in (0, 1) for b in (0, 1)]
    assert told(uncalled, ["x"]) == [("stages.*.proj", "unused")]
    assert told(uncalled, ["stages.proj.proj"]) == [("stages.*.*.proj", "unused")]


def test_two_kinds_of_layers_are_two_globs_and_four_are_none():
    def kinds(*names):
        return [(f"layers.{number}.{name}", "unused") for number in (0, 1) for name in names]

    assert told(kinds("qkv", "proj"), ["x"]) == [("layers.*.qkv, layers.*.proj", "unused")]
    assert told(kinds("a", "b", "c", "d"), ["x"]) == [
        ("layers.0.a, layers.0.b, layers.0.c and 5 more", "unused")
    ]


def test_a_name_with_the_characters_of_a_glob_is_never_part_of_one():
    uncalled = [(f"table.[{number}]", "unused") for number in range(5)]
    assert told(uncalled, ["x"]) == [("table.[0], table.[1], table.[2] and 2 more", "unused")]


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


@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["gradients", "--score", "sum"],
        ["ablate", "--score", "sum"],
        ["compare", "--against", "seed=1"],
    ],
    ids=lambda words: words[0],
)
def test_each_command_groups_uncalled_layers_and_its_json_lists_each_one(own, run, words):
    ended = run(words[0], *own, *words[1:], "--format", "json")
    assert noted(ended.err) == [f"not called, 6 layers: idle.*, last: {WHY}"]
    labels = [*(f"idle.{number}" for number in range(5)), "last"]
    assert json.loads(ended.out)["uncalled"] == [{"layer": each, "reason": WHY} for each in labels]
