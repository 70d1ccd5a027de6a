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
from hookcli.verbs.ablate import _Forwards
from tests.toy_models import two_channel_net

PLAIN = ("--device", "cpu")
SMALL = ("--weights", "random", "--size", "64", *PLAIN)

# With the pixels 3, -4 and 0 in 4 places, conv gives 3 and 4, the sums are 12 and 16, and the
# logits
# 24 and 48.
NETS = (
    two_channel_net(-1, "sum")
    + """

class Reused(Net):
    '''One ReLU twice: of 3 and 4, and of one more; the logits are the sums, 7 and 9.'''

    def forward(self, x):
        first = self.relu(self.conv(x))
        return (first + self.relu(first + 1)).mean((2, 3))


class Several(Net):
    '''A part that returns two tensors of as many channels, and one of others.'''

    def __init__(self):
        super().__init__()
        self.part = Part(self.conv)

    def forward(self, x):
        found = self.part(x)
        one, two, other = found["one"], found["two"], found["other"][:, :2]
        return one.mean((2, 3)) + two.mean((2, 3)) + other.mean((2, 3))


class Part(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.own = conv

    def forward(self, x):
        seen = self.own(x)
        count = torch.ones(1, dtype=torch.int64)
        return {"one": seen, "two": 10 * seen, "other": x, "count": count}


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


class Folded(Net):
    '''Channels as rows of the leading axis, so that no row is an image's.'''

    def __init__(self):
        super().__init__()
        self.fold = nn.Identity()

    def forward(self, x):
        rows = self.fold(self.conv(x).flatten(0, 1).flatten(1))
        return self.fc(rows.view(len(x), 2, -1).sum(2))


class Pair(Net):
    '''Two boxes, however many rows there are.'''

    def __init__(self):
        super().__init__()
        self.pair = nn.Identity()

    def forward(self, x):
        sums = self.conv(x).sum((2, 3)).mean(0)
        return self.fc(self.pair(torch.stack([sums, 2 * sums])).sum(0)).repeat(len(x), 1)


class Doubles(Net):
    def forward(self, x):
        return super().forward(x.mul_(2))


class Tiles(Net):
    '''An image of 4 rows is one tile, one of 8 rows two.'''

    def forward(self, x):
        tiles = x.reshape(-1, 3, 4, x.shape[3])
        return super().forward(tiles).reshape(len(x), -1, 2).sum(1)


class TilesApart(Net):
    def forward(self, x):
        return super().forward(x).repeat_interleave(x.shape[2] // 4, 0)


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


class Together(Net):
    '''What an image gives depends on the others of its batch.'''

    def forward(self, x):
        return super().forward(x).sum(0, keepdim=True)


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


class Uncalled(Net):
    def __init__(self):
        super().__init__()
        self.idle = nn.Conv2d(3, 5, 1)


class Broken(Net):
    '''NaN where the first channel is gone.'''

    def forward(self, x):
        seen = self.conv(x).sum((2, 3))
        return seen / (seen[:, :1] / seen[:, :1])


def total(output, target):
    return output.sum() + (0 if target is None else 1000 * target)
"""
)


@pytest.fixture
def nets():
    Path("nets.py").write_text(NETS)
    draw("a.npy", 3, -4)
    draw("b.npy", 1, -1)  # logits 8 and 12


def draw(name, first, second, side=2):
    np.save(name, np.stack([np.full((side, side), v, np.float32) for v in (first, second, 0)]))


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


def test_a_probability_is_a_softmax_worked_out_by_hand(ablate):
    def softmax(one, other):
        return 1 / (1 + math.exp(other - one))

    document = ablate("Net", "--score", "probability", images=("b.npy",))
    plain = softmax(12, 8)
    assert effects(document)["conv", 0] == pytest.approx(plain - softmax(12, 0), abs=1e-6)
    assert effects(document)["conv", 1] == pytest.approx(plain - softmax(0, 8), abs=1e-6)
    assert document["images"][0]["score"]["kind"] == "probability"


def test_the_channel_whose_removal_raises_the_cross_entropy_most_comes_first(ablate):
    document = ablate("Net", "--score", "cross-entropy", images=("b.npy",))
    assert [row["channel"] for row in document["channels"]] == [1, 0]
    assert document["channels"][0]["effect"] == pytest.approx(math.log(1 + math.exp(-4)) - 8, 1e-3)


def test_a_function_of_the_users_gets_output_and_target(ablate, monkeypatch):
    monkeypatch.syspath_prepend(".")
    document = ablate("Net", "--score", "nets:total", "--target", "1")
    assert document["channels"][0]["plain_score"] == 1072.0
    assert effects(document) == {("conv", 0): 24.0, ("conv", 1): 48.0}


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


def test_pixels_that_a_model_writes_over_are_new_for_each_forward(ablate):
    assert [row["plain_score"] for row in ablate("Doubles")["channels"]] == [96.0, 96.0]


def test_all_tensors_of_an_output_that_have_these_channels_are_zeroed(ablate):
    draw("large.npy", 3, -4, side=4)
    document = ablate("Several", "--layers", "part", "--target", "1", images=("large.npy",))
    assert effects(document) == {("part", 0): 0.0, ("part", 1): 44.0}


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


@pytest.mark.parametrize("path", ["conv1", "layer4.1.conv2"])
def test_zeroing_a_channel_equals_zeroing_the_weights_of_its_filter(run, path):
    """By hand: a copy of the model with the filter's weights at zero; no convolution has a bias."""
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


def test_a_tensor_whose_rows_are_no_images_is_zeroed_in_a_forward_of_its_own(ablate, run):
    assert says(run, "Folded", "--layers", "fold") == "4 channels of 1 layer, 1 image, 5 forwards"
    document = ablate("Folded", "--layers", "fold", "--target", "0")
    assert set(effects(document).values()) == {6.0}  # one of 4 places, in all rows


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


def test_a_model_whose_output_is_not_that_of_rows_runs_one_channel_at_a_time(ablate, run):
    assert says(run, "Together") == "2 channels of 1 layer, 1 image, 3 forwards"
    assert effects(ablate("Together")) == {("conv", 0): 0.0, ("conv", 1): 48.0}


def test_a_model_that_takes_one_image_runs_one_channel_at_a_time(ablate, run, nets):
    assert says(run, "Single") == "2 channels of 1 layer, 1 image, 3 forwards"
    for words in ((), ("--batch-size", "1")):
        assert effects(ablate("Single", *words)) == {("conv", 0): 0.0, ("conv", 1): 48.0}


# What is said


def test_the_run_says_the_same_plan_and_makes_as_many_forwards(run, nets, monkeypatch):
    count = 0
    done = _Forwards.done

    def counted(self):
        nonlocal count
        count += 1
        done(self)

    monkeypatch.setattr(_Forwards, "done", counted)
    words = ("ablate", "nets.py:Net", "a.npy", "b.npy", *PLAIN, "--layers", "leaf")
    words += ("--batch-size", "4")
    ended = run(*words)
    plan = "nets.py:Net: 6 channels of 3 layers, 2 images, 6 forwards of up to 4"
    assert ended.err.splitlines()[1] == plan
    assert count == 6
    assert run(*words, "--dry-run").err.splitlines() == [plan]


def test_a_long_ablation_says_how_long_it_will_take(run, nets, monkeypatch):
    now = 0.0

    def later():
        nonlocal now
        now += 3.0
        return now

    monkeypatch.setattr("hookcli.verbs.ablate.time.monotonic", later)
    words = ("ablate", "nets.py:Net", "a.npy", *PLAIN, "--layers", "leaf", "--batch-size", "1")
    ended = run(*words)
    plan = "nets.py:Net: 6 channels of 3 layers, 1 image, 7 forwards"
    assert ended.err.splitlines()[1:3] == [plan, "about 18 s"]
    assert "about" not in run(*words, "--quiet").err


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
            "Uncalled --layers idle",
            "none of the layers runs and returns floating-point numbers",
            f"{SHOWS} what runs",
        ),
        (
            "Net --target cat",
            "--target: no category is called 'cat'",
            "the names of this model's classes are not known: give an index",
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


@pytest.mark.parametrize(
    ("net", "what"), [("Tiles", "conv"), ("TilesApart", "the output of the model")]
)
def test_an_image_of_a_size_for_which_rows_are_no_images_is_refused(run, nets, net, what):
    draw("four.npy", 3, -4, side=4)
    draw("eight.npy", 3, -4, side=8)
    ended = run("ablate", f"nets.py:{net}", "four.npy", "eight.npy", *PLAIN)
    assert ended.code == 2
    assert ended.err.splitlines()[-2:] == [
        f"error: the leading axis of {what} is not that of its 2 input rows",
        "hint: zero one channel at a time: --batch-size 1",
    ]
    words = ("--batch-size", "1", "--score", "sum")
    assert run("ablate", f"nets.py:{net}", "four.npy", "eight.npy", *PLAIN, *words).code == 0


# What is left


def prepare(net="Net"):
    request = RunRequest(ModelRequest(f"nets.py:{net}", device="cpu"), ImageRequest(("a.npy",)))
    return prepare_ablation(AblationConfig(request))


def hooks_of(model):
    return [
        (path, name)
        for path, module in model.named_modules()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        if getattr(module, name)
    ]


def test_nothing_is_left_on_the_model(nets):
    prepared = prepare()
    weights = {
        name: value.clone() for name, value in prepared.model.loaded.module.state_dict().items()
    }
    seen = []
    result = ablate_images(
        prepared, seen.append, lambda: seen.append(hooks_of(prepared.model.loaded.module))
    )
    assert [{path for path, _ in each} for each in seen[1:]] == [{"conv"}] * 2  # while it runs
    assert [row.effect for row in result.rows] == [48.0, 0.0]
    assert hooks_of(prepared.model.loaded.module) == []
    state = prepared.model.loaded.module.state_dict()
    assert all(torch.equal(state[name], weights[name]) for name in weights)


WHOLE = """
import torch
from torch import nn

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.same = nn.BatchNorm2d(2, eps=0, affine=False)
        self.register_buffer("weight", torch.eye(2, dtype=torch.int8))

    def forward(self, x):
        return self.same(x).mean((2, 3)) @ self.weight.float()
"""


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_model_without_a_parameter_that_takes_a_gradient_can_be_ablated(run, more):
    Path("whole.py").write_text(WHOLE)
    np.save("two.npy", np.stack([np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)]))
    words = ("--layers", "same", "--channels", "0", "--target", "0", "--device", "cpu")
    ended = run("ablate", "whole.py:Whole", "two.npy", *words, "--format", "csv", *more)
    assert ended.code == 0, ended.err
    if not more:
        assert ended.out.splitlines()[1].split(",")[:4] == ["1", "same", "0", "1.0"]
