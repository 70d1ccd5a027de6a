"""``compare --against batch=N``: the others in the batch, the part of the image, planted causes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import hookcli
from hookcli.comparison.among import Part, make_noise
from hookcli.comparison.side import to_array
from hookcli.records.calls import Call, LayerInfo
from tests.toy_models import Between, Fault

PIXELS = torch.linspace(-1, 1, 3 * 4 * 4).view(1, 3, 4, 4)
CALL = Call(LayerInfo("conv", "Conv2d"))


class Normed(nn.Module):
    """A batch norm that computes statistics of the batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm.train()(x)


class Attended(nn.Module):
    """An attention that takes the images for the tokens."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        tokens = x.flatten(2).mT
        return self.attention(tokens, tokens, tokens, need_weights=False)[0].mT.view(x.shape)


def compare(fault, against, **words):
    outcome = hookcli.compare(Between(fault), PIXELS, against=against, layers="leaf", **words)
    return outcome.document()


@pytest.mark.parametrize(
    ("fault", "culprit"),
    [
        (lambda x: x - x.mean(0), "fault/op:mean"),
        (lambda x: x.softmax(0), "fault/op:softmax"),
        (lambda x: x / x.max(), "fault/op:max"),
        (lambda x: functional.normalize(x, dim=0), "fault/op:normalize"),
        (lambda x: x[:1].expand_as(x), "fault"),
        (lambda x: x.flip(0), "fault/op:flip"),
        (lambda x: torch.cat([x[1:], x[:1] * 0]), "fault/op:cat"),  # of the next image
        (lambda x: torch.cat([x[:1] * 0, x[:-1]]), "fault/op:cat"),  # of the image before
        (lambda x: x[-1:].expand_as(x), "fault"),
        (Normed(), "fault.norm"),
        (Attended(), "fault.attention[0]"),
    ],
)
def test_what_mixes_the_images_of_a_batch_is_named(fault, culprit):
    found = compare(fault, "batch=3", blame=True)
    assert (found.first, found.culprits) == (culprit, (culprit,))


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: x.flatten(2).permute(2, 0, 1).contiguous().permute(1, 2, 0).view(x.shape),
        lambda x: (
            x.view(len(x), 4, 2, 2, 4).transpose(1, 2).reshape(-1, 4, 2, 4).tanh().reshape(x.shape)
        ),
        lambda x: x.permute(2, 3, 0, 1).reshape(-1, 4).relu().view(4, 4, -1, 4).permute(2, 3, 0, 1),
    ],
)
def test_what_keeps_the_images_apart_is_no_difference(fault):
    """Wherever the images are: on another axis, first in longer rows, or last in them."""
    found = compare(fault, "batch=3", blame=True)
    assert (found.first, found.culprits) == (None, ())


def test_the_answer_and_the_change_are_those_of_the_image(capfd):
    found = compare(lambda x: x.roll(1, 0), "batch=1")
    assert [(each.name, each.a, each.b) for each in found.changed] == [
        ("batch", "1 image", "among 1 other")
    ]
    assert found.verdict.startswith("2 of 4 calls differ, ")
    assert "top class" in found.verdict


def test_training_mode_in_a_batch_names_the_batch_norm():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    found = hookcli.compare(
        model.eval(), PIXELS, against=["batch=3", "mode=train"], layers="leaf", blame=True
    ).document()
    assert (found.first, found.culprits) == ("1", ("1",))


def test_the_others_are_the_other_images_in_turn():
    """The image itself, the same image again, and one of another shape are left out."""
    seen = []
    images = [torch.full((3, 4, 4), value) for value in (1.0, 2.0, 1.0, 3.0)]
    images.append(torch.zeros(3, 2, 8))

    def note(x):
        seen.append(x[:, 0, 0, 0].tolist())
        return x

    model = nn.Sequential(Fault(note), nn.Flatten())
    hookcli.compare(model, images, against="batch=5", layers="all")
    batches = [each for each in seen if len(each) > 1]
    assert batches[0] == [2, 3, 2, 3, 1, 2]
    assert batches[1] == [1, 1, 3, 1, 2, 1]
    assert (batches[4][-2], len(set(batches[4]))) == (0, 6)  # among noise
    seen.clear()
    hookcli.compare(model, images[:2], against="batch=1", layers="all")
    assert [each for each in seen if len(each) > 1] == [[2, 1], [1, 2]]


def test_noise_has_the_mean_of_the_image_and_twice_its_deviation():
    pixels = torch.cat([torch.full((1, 3, 64, 64), 1.0), torch.full((1, 3, 64, 64), 3.0)], 2)
    one, two = make_noise(pixels, 0), make_noise(pixels, 1)
    assert (one.mean().item(), one.std().item()) == pytest.approx((2, 2), abs=0.05)
    assert not torch.equal(one, two)
    assert make_noise(torch.zeros(1, 3, 4, 4), 0).std() > 1  # of a black image


@pytest.mark.parametrize(
    ("whole", "a", "part"),
    [
        ([[1, 2], [3, 4], [5, 6]], [[5, 6]], [[5, 6]]),
        ([[1, 2, 3]], [[3]], [[3]]),
        ([1, 2, 3, 4, 5, 6], [5, 6], [5, 6]),  # the image is last
        ([1, 2, 5, 3, 4, 6], [5, 6], [5, 6]),  # the image is every third
        ([1, 2], [1, 2], [1, 2]),
        ([1, 2, 3], [1, 2], [1, 2, 3]),  # of another shape
        ([[1], [2]], [1], [[1], [2]]),
    ],
)
def test_the_part_of_the_image_is_cut_out(whole, a, part):
    cut = []
    parts = Part(3, {"conv": np.array(a, "f4")})
    parts.observing(lambda _call, tensor: cut.append(tensor))(CALL, torch.tensor(whole).float())
    assert to_array(cut[0]).tolist() == part


def test_only_the_part_of_the_image_is_fed():
    parts = Part(3, {"conv": np.array([[5.0]])})
    parts.observing(lambda *_: None)(CALL, torch.tensor([[1.0], [2.0], [3.0]]))
    assert parts.feeding(lambda _: np.array([[5.0]]))("conv").tolist() == [[1], [2], [5]]
    parts.observing(lambda *_: None)(CALL, torch.ones(2))
    assert parts.feeding(lambda _: np.array([[5.0]]))("conv") is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("batch=0", "`against` batch=0: not a number from 1 to 255"),
        ("batch=x", "`against` batch=x: not a number from 1 to 255"),
        (["batch=2", "onnx"], "batch cannot be combined with onnx"),
        (["batch=2", "repeat"], "`against` repeat runs A again, so nothing else can differ"),
    ],
)
def test_batches_that_cannot_be_are_refused(words, error):
    with pytest.raises(hookcli.HookcliError) as caught:
        compare(lambda x: x, words)
    assert caught.value.message == error


def test_images_that_share_no_pass_are_refused():
    model = nn.Bilinear(3, 2, 1)
    given = "input2=[[1.0, 2.0], [3.0, 4.0]]"
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.compare(model, torch.ones(1, 3, 4, 4), against="batch=2", layers="all", input=given)
    assert "runs one image at a time: the first axis of input2 (2x2) is not 1" in str(caught.value)


def test_a_detector_takes_one_image_at_a_time():
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.compare(name, PIXELS, against="batch=2", weights="random", device="cpu")
    assert caught.value.message == f"batch: {name} runs one image at a time"


@pytest.mark.parametrize("word", ["batch=2", "repeat", "dtype=float16"])
def test_a_second_difference_without_the_option_is_no_image(run, photo, word):
    ended = run("compare", "resnet18", str(photo), "--against", "threads=1", word)
    assert (ended.code, ended.out) == (2, "")
    assert f"{word} would be an image" in ended.err
    assert "name each after its own --against" in ended.err
