"""``hookcli ablate``: what a score loses by each channel, against models whose channels are cut
out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.models import resnet18

from hookcli.config import AblationConfig, ImageRequest, ModelRequest, RunRequest
from hookcli.plan.prepare import prepare_ablation
from hookcli.run.ablation import ablate_images
from hookcli.verbs.call import Progress
from tests.hooks.test_observe import hooks_left
from tests.toy_models import draw, two_channel_net

PLAIN = ("--device", "cpu")
SMALL = ("--weights", "random", "--size", "64", *PLAIN)

# With the pixels 3, -4 and 0 in 4 places, conv gives 3 and 4, the sums are 12 and 16, and the
# logits 24 and 48.
NETS = (
    two_channel_net(-1, "sum")
    + """

class Reused(Net):
    '''One ReLU twice: of 3 and 4, and of one more; the logits are the sums, 7 and 9.'''

    def forward(self, x):
        first = self.relu(self.conv(x))
        return (first + self.relu(first + 1)).mean((2, 3))


class Several(Net):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        return sum(each[:, :2].mean((2, 3)) for each in self.part(x).values())


class Part(nn.Module):
    def forward(self, x):
        return {"one": x[:, :2] * 1, "two": 10 * x[:, :2], "three channels": x * 1}


class Boxes(Net):
    '''A detector: the box of an image is there where its second channel is.'''

    def forward(self, x):
        return [self.found(sums) for sums in self.relu(self.conv(x)).sum((2, 3))]

    def found(self, sums):
        there = sums[1:] > 0
        return {
            "boxes": torch.zeros(1, 4)[there],
            "scores": sums[1:][there] / 100,
            "labels": torch.tensor([7])[there],
        }


class Pair(Net):
    '''Two boxes, however many rows there are.'''

    def __init__(self):
        super().__init__()
        self.pair = nn.Identity()

    def forward(self, x):
        sums = self.conv(x).sum((2, 3)).mean(0)
        return self.fc(self.pair(torch.stack([sums, 2 * sums])).sum(0)).repeat(len(x), 1)


class Tiles(Net):
    '''An image of 4 rows is one tile, one of 8 rows two.'''

    def forward(self, x):
        tiles = x.reshape(-1, 3, 4, x.shape[3])
        return super().forward(tiles).reshape(len(x), -1, 2).sum(1)


class Aliased(Net):
    '''A part that gives back what it was given, which is also used without it.'''

    def __init__(self):
        super().__init__()
        self.same = nn.Identity()

    def forward(self, x):
        sums = self.relu(self.conv(x)).sum((2, 3))
        return self.same(sums) + 10 * sums


class Shared(Net):
    '''A bias that is made once for all rows.'''

    def __init__(self):
        super().__init__()
        self.bias = nn.Linear(1, 2)
        with torch.no_grad():
            self.bias.weight.fill_(0)
            self.bias.bias.copy_(torch.tensor([100.0, 5]))

    def forward(self, x):
        return super().forward(x) + self.bias(torch.ones(1, 1))


class Single(Net):
    def forward(self, x):
        assert len(x) == 1, "one image"
        return super().forward(x)


class Unknown(Net):
    def __init__(self):
        super().__init__()
        self.odd = nn.Identity()

    def forward(self, x):
        self.odd(x.reshape(len(x), 1, 1, 1, 1, -1))
        return super().forward(x)


class Broken(Net):
    '''NaN where the first channel is gone.'''

    def forward(self, x):
        seen = self.conv(x).sum((2, 3))
        return seen / (seen[:, :1] / seen[:, :1])
"""
)


@pytest.fixture
def nets():
    Path("nets.py").write_text(NETS)
    draw("a.npy", 3, -4)
    draw("b.npy", 1, -1)  # logits 8 and 12


@pytest.fixture
def ablate(run, nets):
    def command(net, *words, images=("a.npy",)):
        ended = run("ablate", f"nets.py:{net}", *images, *PLAIN, "--format", "json", *words)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return command


def effects(document):
    return {(row["layer"], row["channel"]): row["effect"] for row in document["channels"]}


def figures(document):
    names = ("rank", "layer", "channel", "effect", "score", "plain_score", "images")
    return [tuple(row[name] for name in names) for row in document["channels"]]


# What a channel is worth


def test_the_effect_is_what_the_predicted_class_loses(ablate):
    document = ablate("Net")
    assert figures(document) == [
        (1, "conv", 1, 48.0, 0.0, 48.0, 1),
        (2, "conv", 0, 0.0, 48.0, 48.0, 1),
    ]
    assert document["images"][0]["score"] == {
        "kind": "logit",
        "value": 48.0,
        "target": 1,
        "category": "class 1",
    }


def test_the_channel_whose_removal_raises_the_cross_entropy_most_comes_first(ablate):
    document = ablate("Net", "--score", "cross-entropy", images=("b.npy",))
    assert [row["channel"] for row in document["channels"]] == [1, 0]
    assert document["channels"][0]["effect"] == pytest.approx(math.log(1 + math.exp(-4)) - 8, 1e-3)


def test_several_images_are_averaged_and_each_has_its_own_target(ablate):
    draw("c.npy", 5, -1)  # logits 40 and 12: class 0 leads
    document = ablate("Net", images=("a.npy", "b.npy", "c.npy"))
    assert [image["score"]["target"] for image in document["images"]] == [1, 1, 0]
    assert figures(document) == [
        (1, "conv", 1, 20.0, (0 + 0 + 40) / 3, (48 + 12 + 40) / 3, 3),
        (2, "conv", 0, pytest.approx(40 / 3), 20.0, (48 + 12 + 40) / 3, 3),
    ]


def test_a_module_that_is_used_twice_is_zeroed_in_both_calls(ablate):
    """In the first call alone the second would still let 1 through, in the second alone the first
    4."""
    assert effects(ablate("Reused", "--layers", "relu")) == {("relu", 0): 0.0, ("relu", 1): 9.0}


def test_what_a_module_was_given_is_not_written_over(ablate):
    """The sums are 12 and 16: what does not go through the part keeps its ten times 16."""
    assert effects(ablate("Aliased", "--layers", "same"))["same", 1] == 16.0


def test_all_tensors_of_an_output_that_have_as_many_channels_are_zeroed(ablate):
    document = ablate("Several", "--layers", "part", "--target", "0")
    assert effects(document) == {("part", 0): 33.0, ("part", 1): 0.0}


def test_scores_that_are_not_finite_have_no_effect_and_come_last(ablate):
    document = ablate("Broken", "--target", "1")
    assert figures(document) == [
        (1, "conv", 1, 16.0, 0.0, 16.0, 1),
        (2, "conv", 0, None, None, 16.0, 1),
    ]


def test_a_box_that_is_gone_has_the_score_0(ablate):
    document = ablate("Boxes", images=("a.npy", "b.npy"))
    assert [image["score"]["target"] for image in document["images"]] == [7, 7]
    assert effects(document) == {("conv", 0): 0.0, ("conv", 1): pytest.approx((0.16 + 0.04) / 2)}
    assert document["channels"][0]["score"] == 0.0


def test_zeroing_a_channel_equals_zeroing_the_weights_of_its_filter(run):
    """By hand: a copy of the model with the filter's weights at zero; no convolution has a bias."""
    path = "layer4.1.conv2"
    torch.manual_seed(1)
    np.save("noise.npy", torch.rand(3, 64, 64).numpy())
    pixels = torch.from_numpy(np.load("noise.npy")).unsqueeze(0)
    words = ("--layers", path, "--channels", "0-2", "--target", "tabby", "--format", "json")
    document = json.loads(run("ablate", "resnet18", "noise.npy", *SMALL, *words).out)
    assert document["images"][0]["score"]["target"] == 281
    torch.manual_seed(0)
    model = resnet18(weights=None).eval()
    for row in document["channels"]:
        with torch.no_grad():
            plain = model(pixels)[0, 281].item()
            weight = model.get_submodule(path).weight[row["channel"]]
            before = weight.clone()
            weight.zero_()
            zeroed = model(pixels)[0, 281].item()
            weight.copy_(before)
        assert row["plain_score"] == pytest.approx(plain, abs=1e-5)
        assert row["score"] == pytest.approx(zeroed, abs=1e-5)
        assert row["effect"] == row["plain_score"] - row["score"]
    assert max(abs(row["effect"]) for row in document["channels"]) > 1e-3


# One channel at a time


def says(run, net, *words, image="a.npy"):
    ended = run("ablate", f"nets.py:{net}", image, *PLAIN, "--dry-run", *words)
    assert ended.code == 0
    return ended.err.removeprefix(f"nets.py:{net}: ").rstrip()


def test_a_tensor_whose_rows_are_not_images_is_zeroed_as_a_whole(ablate, run):
    assert says(run, "Pair", "--layers", "pair") == "2 channels of 1 layer, 1 image, 3 forwards"
    document = ablate("Pair", "--layers", "pair")  # class 1: 3 * (16 + 32)
    assert effects(document) == {("pair", 0): 0.0, ("pair", 1): 144.0}


def test_a_tensor_that_all_rows_share_is_zeroed_in_a_forward_of_its_own(ablate, run):
    forms = ("--layers", "conv,bias")
    expected = "4 channels of 2 layers, 1 image, 5 forwards of up to 2"
    assert says(run, "Shared", *forms) == expected
    assert effects(ablate("Shared", *forms, "--target", "0")) == {
        ("conv", 0): 24.0,
        ("conv", 1): 0.0,
        ("bias", 0): 100.0,
        ("bias", 1): 0.0,
    }


def test_a_model_that_takes_one_image_runs_one_channel_at_a_time(ablate, run, nets):
    assert says(run, "Single") == "2 channels of 1 layer, 1 image, 3 forwards"
    for words in ((), ("--batch-size", "1")):
        assert effects(ablate("Single", *words)) == {("conv", 0): 0.0, ("conv", 1): 48.0}


# What is said


def test_the_run_says_the_same_plan_and_makes_as_many_forwards(run, nets, monkeypatch):
    count = 0

    def step(self):
        nonlocal count
        count += 1

    monkeypatch.setattr(Progress, "step", step)
    words = ("ablate", "nets.py:Net", "a.npy", "b.npy", *PLAIN, "--layers", "leaf")
    words += ("--batch-size", "4")
    ended = run(*words)
    plan = "nets.py:Net: 6 channels of 3 layers, 2 images, 6 forwards of up to 4"
    assert ended.err.splitlines()[1] == plan
    assert count == 6
    assert run(*words, "--dry-run").err.splitlines() == [plan]


def test_the_table_shows_the_first_and_what_was_looked_at(run, nets):
    ended = run("ablate", "nets.py:Net", "a.npy", "b.npy", *PLAIN, "--layers", "leaf", "--top", "2")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["#", "layer", "channel", "effect", "score", "plain"]
    assert [line.split() for line in lines[2:4]] == [
        ["1", "conv", "1", "30", "0", "30"],
        ["2", "relu", "1", "30", "0", "30"],
    ]
    assert lines[4:] == [
        "the first 2 of 6 channels; all of them: --format csv",
        "weights: as nets.py:Net made them (seed 0)",
        "a.npy: logit of class 1 (1) = 48",
        "b.npy: logit of class 1 (1) = 12",
    ]


# How it ends


SHOWS = "hookcli layers MODEL shows"


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("Net --channels 0,2", "--channels: conv has no channel 2", "it has 2, counted from 0"),
        (
            "Unknown --layers odd",
            "odd (Identity) has no known channels",
            f"{SHOWS} the layouts; leave it out with --exclude",
        ),
        (
            "Boxes --target 3",
            "the model found no box of class 3 in an image",
            "choose a different --target, or --score sum",
        ),
    ],
)
def test_what_cannot_be_met_ends_with_2(run, nets, words, error, hint):
    net, *more = words.split()
    ended = run("ablate", f"nets.py:{net}", "a.npy", *PLAIN, "--quiet", *more)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-2:] == [f"error: {error}", f"hint: {hint}"]


def test_an_image_of_a_size_for_which_rows_are_no_images_is_refused(run, nets):
    draw("four.npy", 3, -4, side=4)
    draw("eight.npy", 3, -4, side=8)
    words = ("ablate", "nets.py:Tiles", "four.npy", "eight.npy", *PLAIN)
    ended = run(*words)
    assert ended.code == 2
    assert ended.err.splitlines()[-2:] == [
        "error: the leading axis of conv is not that of its 2 input rows",
        "hint: zero one channel at a time: --batch-size 1",
    ]
    assert run(*words, "--batch-size", "1", "--score", "sum").code == 0


# What is left


def prepare(net="Net"):
    request = RunRequest(ModelRequest(f"nets.py:{net}", device="cpu"), ImageRequest(("a.npy",)))
    return prepare_ablation(AblationConfig(request))


def test_nothing_is_left_on_the_model(nets):
    prepared = prepare()
    weights = {
        name: value.clone() for name, value in prepared.model.loaded.module.state_dict().items()
    }
    seen = []
    result = ablate_images(
        prepared, seen.append, lambda: seen.append(hooks_left(prepared.model.loaded.module))
    )
    tables = ("hooks", "hooks_always_called", "pre_hooks", "pre_hooks_with_kwargs")
    assert seen[1:] == [[("conv", f"_forward_{each}") for each in tables]] * 2  # while it runs
    assert [row.effect for row in result.rows] == [48.0, 0.0]
    assert hooks_left(prepared.model.loaded.module) == []
    state = prepared.model.loaded.module.state_dict()
    assert all(torch.equal(state[name], weights[name]) for name in weights)
