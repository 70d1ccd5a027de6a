"""``--prune`` held against ``torch.nn.utils.prune`` called by hand, and ``--save-weights``."""

from __future__ import annotations

import csv
import json
import math
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import prune

from hookcli.edits.grammar import read_prune
from hookcli.edits.pruning import prune_model
from hookcli.errors import RequestError
from tests.toy_models import Squeezed

SQUEEZED = "tests.toy_models:Squeezed"
FILE = "pruned.safetensors"
EXISTING = "name a file in an existing folder"
SMALL = ("--weights", "random", "--size", "32", "--grids", "none")
SMALL += ("--layers", "conv[1]", "-o", "out")

# conv gives 4*3 + 1*-4 = 8 and -2*-4 + 3*1 = 11 in each of 4 places, so class 1 leads with 44 to 32
NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[4.0, 1, 0], [0, -2, 3]]).view(2, 3, 1, 1))
            self.fc.weight.copy_(torch.eye(2))

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).sum((2, 3)))


class Twice(Net):
    def __init__(self):
        super().__init__()
        self.again = self.conv
"""
OWN = ("pixels.npy", "--grids", "none", "-o", "out")


@pytest.fixture
def net():
    Path("net.py").write_text(NET)
    np.save("pixels.npy", np.stack([np.full((2, 2), v, np.float32) for v in (3.0, -4.0, 1.0)]))
    return "net.py:Net"


def rows():
    with Path("out/layers.csv").open(newline="") as table:
        return {row["call_id"]: row for row in csv.DictReader(table)}


def by_hand(seed, *steps):
    """Random weights of the toy after ``steps``, each of which prunes all convolutions."""
    torch.manual_seed(seed)
    model = Squeezed()
    convs = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    for step in steps:
        torch.manual_seed(seed)
        for conv in convs:
            step(conv)
    for conv in convs:
        prune.remove(conv, "weight")
    return model.state_dict()


def assert_same(state, other):
    assert state.keys() == other.keys()
    assert [name for name in state if not torch.equal(state[name], other[name])] == []


# What is pruned


def l1(conv):
    prune.l1_unstructured(conv, "weight", amount=0.3)


def at_random(conv):
    prune.random_unstructured(conv, "weight", amount=0.3)


def ln(conv):
    prune.ln_structured(conv, "weight", amount=0.3, n=2, dim=0)


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["conv=0.3:l1", "conv=0.3:ln"], [l1, ln]),
        (["conv=0.3:ln", "conv=0.3:random"], [ln, at_random]),
    ],
)
def test_the_weights_are_those_that_torchs_own_pruning_leaves(run, cat, words, steps):
    prunes = [word for each in words for word in ("--prune", each)]
    ended = run("inspect", SQUEEZED, cat, *SMALL, "--seed", 3, *prunes, "--save-weights", FILE)
    assert ended.code == 0
    assert_same(load_file(FILE), by_hand(3, *steps))


def test_another_seed_prunes_other_weights_at_random():
    masks = []
    for seed in (0, 0, 1):
        model = nn.Sequential(nn.Linear(100, 100))
        prune_model(model, ["linear=0.5:random"], seed)
        masks.append(model.get_buffer("0.weight_mask"))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_pruning_half_of_what_is_left_leaves_a_quarter():
    model = nn.Sequential(nn.Linear(4, 4))
    pruning = prune_model(model, ["linear=0.5", "linear=0.5"])
    assert pruning.sparsities == {"0": 0.75}
    largest = model[0].weight_orig.abs().flatten().topk(4).indices
    assert sorted(largest.tolist()) == model[0].weight_mask.flatten().nonzero().flatten().tolist()


def test_ln_takes_whole_output_channels_of_a_transposed_convolution_too():
    model = nn.Sequential(nn.ConvTranspose2d(2, 3, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[9.0, 1, 5], [0, 1, 5]]).view(2, 3, 1, 1))
    prune_model(model, ["conv=0.34:ln"])
    assert model[0].weight_mask.flatten().tolist() == [1, 0, 1, 1, 0, 1]


# What is shown of it


def test_the_run_shows_the_share_of_zeros_and_how_far_the_layers_moved(run, net):
    ended = run("inspect", net, *OWN, "--layers", "leaf", "--prune", "conv=0.5")
    assert ended.code == 0
    seen = rows()
    # the 1 and both zeros are the smallest of six: conv gives 12 and 11 instead of 8 and 11
    assert (seen["conv"]["max"], seen["conv"]["min"]) == ("12.0", "11.0")
    assert float(seen["conv"]["change"]) == pytest.approx(4 / math.hypot(8, 11))
    assert float(seen["fc"]["change"]) == pytest.approx(16 / math.hypot(32, 44))
    assert [seen[name]["sparsity"] for name in ("conv", "relu", "fc")] == ["0.5", "", ""]


# What is refused


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("conv", "it does not say how much", "write LAYERS=AMOUNT: conv=0.3"),
        ("conv=much", "'much' is not a number", "a share from 0 to 1: conv=0.3"),
        ("conv=0", "the amount is a share, more than 0 and at most 1", ""),
        ("conv=1.5", "the amount is a share, more than 0 and at most 1", ""),
        ("conv=nan", "the amount is a share, more than 0 and at most 1", ""),
        ("conv=0.3:l2", "'l2' is not a method", "one of: l1, random, ln"),
    ],
)
def test_what_cannot_be_read_is_refused(run, net, text, message, hint):
    ended = run("inspect", net, *OWN, "--prune", text)
    assert ended.code == 2
    lines = [f"error: --prune {text!r}: {message}", *[f"hint: {hint}"] * bool(hint)]
    assert ended.err.splitlines() == lines
    assert not Path("out").exists()


def test_a_form_of_layers_may_hold_an_equals_sign():
    assert read_prune("re:a=b=0.25:ln").layers == "re:a=b"


def test_layers_without_weights_are_refused(run, net):
    ended = run("inspect", net, *OWN, "--prune", "relu=0.5")
    assert ended.code == 2
    assert ended.err.splitlines() == [
        "error: --prune 'relu=0.5': none of its layers has a weight of its own",
        "hint: prune conv or linear",
    ]


def test_ln_needs_channels():
    with pytest.raises(RequestError, match="the weight of 0 has one axis"):
        prune_model(nn.Sequential(nn.BatchNorm2d(4)), ["norm=0.5:ln"])


# The weights on disk


def test_the_weights_have_the_names_of_a_model_that_was_never_pruned(run, net):
    words = ("--layers", "conv", "--prune", "conv=0.5", "--save-weights", FILE)
    ended = run("inspect", net, *OWN, *words)
    assert ended.code == 0
    assert ended.err.splitlines()[-2] == f"wrote {FILE}"
    state = load_file(FILE)
    assert {name: tensor.flatten().tolist() for name, tensor in state.items()} == {
        "conv.weight": [4, 0, 0, 0, -2, 3],
        "fc.weight": [1, 0, 0, 1],
    }
    assert all(tensor.is_contiguous() for tensor in state.values())


def test_saved_weights_load_again_and_give_the_same_figures(run, cat):
    words = (*SMALL, "--layers", "all", "--format", "json")
    pruned = run("inspect", SQUEEZED, cat, *words, "--prune", "conv=0.5", "--save-weights", FILE)
    again = run("inspect", SQUEEZED, cat, *words, "--overwrite", "--weights", FILE)
    assert (pruned.code, again.code) == (0, 0)
    one, other = (json.loads(ended.out) for ended in (pruned, again))
    names = ("call_id", "mean", "std", "min", "max", "zero_fraction")
    figures = [[[row[name] for name in names] for row in each["layers"]] for each in (one, other)]
    assert figures[0] == figures[1]
    assert one["images"][0]["predictions"] == other["images"][0]["predictions"]


def test_a_module_with_two_names_is_written_under_both(run, net):
    words = ("--layers", "conv", "--prune", "conv=0.5", "--save-weights", FILE)
    assert run("inspect", "net.py:Twice", *OWN, *words).code == 0
    state = load_file(FILE)
    assert sorted(state) == ["again.weight", "conv.weight", "fc.weight"]
    assert torch.equal(state["again.weight"], state["conv.weight"])
    assert run("inspect", "net.py:Twice", *OWN, "--overwrite", "--weights", FILE).code == 0


@pytest.mark.parametrize(
    ("words", "code", "error", "hint"),
    [
        ("w.safetensors", 2, "--save-weights writes the pruned weights, and needs --prune", ""),
        (
            "w.pth --prune conv=0.5",
            2,
            "--save-weights writes .safetensors, not 'w.pth'",
            "--save-weights w.safetensors",
        ),
        ("no/w.safetensors --prune conv=0.5", 5, "cannot write 'no/w.safetensors'", EXISTING),
        (
            "mine.safetensors --prune conv=0.5",
            5,
            "'mine.safetensors' already exists",
            "replace it with --overwrite, or name another file",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_run(run, net, words, code, error, hint):
    Path("mine.safetensors").write_text("mine")
    for more in ((), ("--dry-run",)):
        ended = run("inspect", net, *OWN, "--save-weights", *words.split(), *more)
        assert ended.code == code
        assert ended.err.splitlines() == [f"error: {error}", *[f"hint: {hint}"] * bool(hint)]
        assert not Path("out").exists()
    assert Path("mine.safetensors").read_text() == "mine"


def test_weights_never_take_the_place_of_those_that_are_pruned_or_of_a_runs_files(run, net):
    words = ("--layers", "conv", "--prune", "conv=0.5", "--overwrite", "--save-weights")
    assert run("inspect", net, *OWN, *words, FILE).code == 0
    before = Path(FILE).read_bytes()
    ended = run("inspect", net, *OWN, *words, FILE, "--weights", FILE)
    assert (ended.code, ended.err.splitlines()[0]) == (
        5,
        f"error: '{FILE}' holds the weights to be pruned",
    )
    ended = run("inspect", net, *OWN, *words, "out/tensors/shard-000000.safetensors")
    assert ended.code == 5
    assert "is a file of the run in" in ended.err
    assert Path(FILE).read_bytes() == before


def test_weights_never_take_the_place_of_a_link(run, net):
    Path("mine.safetensors").write_text("mine")
    Path(FILE).symlink_to("mine.safetensors")
    words = ("--layers", "conv", "--prune", "conv=0.5", "--save-weights", FILE, "--overwrite")
    ended = run("inspect", net, *OWN, *words)
    assert (ended.code, ended.err.splitlines()[0]) == (
        5,
        f"error: '{FILE}' is a link, which is never followed",
    )
    assert (Path("mine.safetensors").read_text(), Path(FILE).is_symlink()) == ("mine", True)


def test_a_run_that_fails_writes_no_weights(run, net):
    Path("net.py").write_text(
        f"{NET}\n\nclass Net(Net):\n    def forward(self, x):\n        1 / 0\n"
    )
    words = ("--layers", "conv", "--prune", "conv=0.5", "--save-weights", FILE)
    assert run("inspect", net, *OWN, *words).code == 4
    assert not Path(FILE).exists()


SHARED = """
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(32, 2))

def make():
    return net
"""
SHARED_RUN = ("shared:make", "pixels.npy", "--size", "4")


@pytest.mark.parametrize(
    "words",
    [
        ("--edit", "nope:zero"),
        ("--prune", "nope=0.5"),
    ],
    ids=["an edit", "another prune"],
)
def test_a_run_that_is_refused_leaves_the_model_unpruned(run, monkeypatch, words):
    Path("shared.py").write_text(SHARED)
    np.save("pixels.npy", np.zeros((3, 4, 4), np.float32))
    monkeypatch.syspath_prepend(".")
    ended = run("inspect", *SHARED_RUN, "--prune", "conv=0.5", *words)
    assert ended.code == 2, ended.err
    net = import_module("shared").net
    names = [name for name, _ in net.named_parameters()]
    assert names == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert not net[0]._forward_pre_hooks
