"""Classifiers with one output, and classifiers that end in a sigmoid or a softmax."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from hookcli.networks.tasks import find_task

NET = """
import torch
from torch import nn


class Net(nn.Module):
    '''Its outputs are ``biases``, whatever the picture, and ``end`` is applied to them.'''

    def __init__(self, biases=(-4.13,), end=None, grad=True):
        super().__init__()
        self.fc, self.end, self.grad = nn.Linear(3, len(biases)), end or nn.Identity(), grad
        nn.init.zeros_(self.fc.weight)
        self.fc.bias.data = torch.tensor(biases)

    def forward(self, x):
        with torch.set_grad_enabled(self.grad and torch.is_grad_enabled()):
            return self.end(self.fc(x.mean((2, 3))))


class AgeRegressor(Net):
    pass


FOUR = (2.0, -1.0, 0.5, 3.0)
def logit(): return Net()
def sigmoid(): return Net(end=torch.sigmoid)
def tanh(): return Net(end=nn.Tanh())
def hidden(): return Net(end=torch.sigmoid, grad=False)
def hidden_module(): return Net(end=nn.Sigmoid(), grad=False)
def hidden_logit(): return Net(grad=False)
def years(): return AgeRegressor()
def softmax(): return Net(FOUR, lambda x: x.softmax(1))
def turned(): return Net(FOUR, lambda x: x.softmax(1)[:, [3, 2, 1, 0]].flip(1))
def guarded(): return Net(FOUR, lambda x: torch.where(x > -9, x.softmax(1).nan_to_num(), 0))
def unknown_last(): return Net(FOUR, lambda x: x.softmax(1).log2().exp2())
def guarded_sigmoid(): return Net(end=lambda x: torch.where(x > -9, x.sigmoid().nan_to_num(), 0))
def learned_scale():
    top = nn.Parameter(torch.tensor(1.5))
    return Net(end=lambda x: top * x.sigmoid())
def slope():
    def of(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad((x * x).sum() / 2, x, create_graph=True)
        return torch.sigmoid(found)
    return Net(end=of)
def light():
    def of(x):
        shares = torch.sigmoid(x)
        if shares.requires_grad:
            print("kept for backward:", shares.grad_fn._saved_result.numel())
        return shares
    return Net(end=of)
def sigmoids(): return Net(FOUR, torch.sigmoid)
def labels():
    net = Net(FOUR)
    net.problem_type = "multi_label_classification"
    return net
"""
WORDS = ("zeros.npy", "--layers", "fc", "--device", "cpu", "--grids", "none")
SICK = 1 / (1 + math.exp(4.13))  # 0.0158
SHARES = [1 / (1 + math.exp(-each)) for each in (2.0, -1.0, 0.5, 3.0)]
WHOLE = sum(math.exp(each) for each in (2.0, -1.0, 0.5, 3.0))
PARTS = [math.exp(each) / WHOLE for each in (2.0, -1.0, 0.5, 3.0)]


@pytest.fixture
def inspect(run):
    """Return a function that returns the predictions by name, stderr, and the score."""
    Path("net.py").write_text(NET)
    np.save("zeros.npy", np.zeros((3, 4, 4), np.float32))

    def command(name, *words, verb="inspect"):
        ended = run(verb, f"net.py:{name}", *WORDS, *words, "--format", "json")
        assert ended.code == 0, ended.err
        (image,) = json.loads(ended.out)["images"]
        found = {
            each["category"]: (each["measure"], each["value"]) for each in image["predictions"]
        }
        return found, ended.err, image["score"]

    return command


def pair(negative="class 0", positive="class 1"):
    return {
        negative: ("probability", pytest.approx(1 - SICK, abs=1e-6)),
        positive: ("probability", pytest.approx(SICK, abs=1e-6)),
    }


@pytest.mark.parametrize(
    ("name", "is_sure"),
    [
        ("logit", False),
        ("hidden_logit", False),
        ("sigmoid", True),
        ("hidden_module", True),
        ("slope", True),
    ],
)
def test_one_output_is_a_sigmoid_applied_once(inspect, name, is_sure):
    found, err, _ = inspect(name)
    assert found == pair()
    assert ("the model has one output, which is read as the logit of class 1" in err) != is_sure


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learned_scale", 1.5 * SICK),
        ("guarded_sigmoid", SICK),
        ("tanh", math.tanh(-4.13)),
        ("hidden", SICK),
        ("years", -4.13),
    ],
)
def test_what_may_be_no_probability_is_a_value(inspect, name, value):
    found, err, _ = inspect(name)
    assert found == {"output 0": ("value", pytest.approx(value, abs=1e-5))}
    assert ("nothing shows whether it is a probability" in err) == (name != "years")


def test_one_name_makes_a_value_and_two_names_make_classes(inspect):
    Path("one").write_text("age\n")
    Path("two").write_text("healthy\nsick\n")
    found, err, _ = inspect("logit", "--categories", "one")
    assert found == {"age": ("value", pytest.approx(-4.13))}
    assert "one output" not in err
    for name in ("logit", "hidden"):
        found, err, _ = inspect(name, "--categories", "two")
        assert found == pair("healthy", "sick")
        assert "--categories" not in err


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("softmax", PARTS),
        ("turned", PARTS),
        ("guarded", PARTS),
        ("unknown_last", PARTS),
        ("sigmoids", SHARES),
        ("labels", SHARES),
    ],
)
def test_several_outputs_are_not_made_probabilities_twice(inspect, name, values):
    found, _, _ = inspect(name)
    assert found == {
        f"class {index}": ("probability", pytest.approx(value, abs=1e-6))
        for index, value in enumerate(values)
    }


@pytest.mark.parametrize(
    ("name", "words", "score"),
    [
        ("logit", (), ("logit", -4.13, 1)),
        ("logit", ("--target", "0"), ("logit", 4.13, 0)),
        ("logit", ("--score", "probability"), ("probability", SICK, 1)),
        ("logit", ("--score", "cross-entropy", "--target", "0"), ("cross-entropy", SICK, 0)),
        ("sigmoid", ("--target", "0"), ("probability", 1 - SICK, 0)),
        ("tanh", (), ("value", math.tanh(-4.13), 0)),
        ("labels", ("--score", "probability", "--target", "1"), ("probability", SHARES[1], 1)),
        ("softmax", ("--target", "2"), ("probability", PARTS[2], 2)),
    ],
)
def test_the_score_of_a_class(inspect, name, words, score):
    _, _, found = inspect(name, *words, verb="gradients")
    kind, value, target = score
    is_rounded = words[-1:] == ("0",) and value == SICK  # -log(1 - p) is p for a small p
    wanted = pytest.approx(value, rel=1e-2 if is_rounded else 1e-5)
    assert (found["kind"], found["value"], found["target"]) == (kind, wanted, target)


def test_gradients_point_the_other_way_for_the_negative_class(inspect, run):
    for target, slope in (("1", "1.0"), ("0", "-1.0")):
        words = ("--target", target, "--format", "csv")
        lines = run("gradients", "net.py:logit", *WORDS, *words).out.splitlines()
        (row,) = [line for line in lines if "grad_output" in line]
        assert dict(zip(lines[0].split(","), row.split(","), strict=True))["mean"] == slope


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("logit", ("--target", "2"), "--target: there is no class 2\nhint: classes are 0 to 1"),
        ("years", ("--score", "probability"), "the model returns values, and no classes"),
    ],
)
def test_classes_that_the_model_lacks_are_refused(inspect, run, name, words, said):
    ended = run("gradients", f"net.py:{name}", *WORDS, *words)
    assert ended.code == 2
    assert said in ended.err


def test_a_map_of_one_logit_is_of_two_classes():
    task = find_task(".segmentation.")
    logits = torch.tensor([[[[2.0, -1.0], [-3.0, -4.0]]]])
    (found,) = task.read(logits, ())
    assert {each.category: each.value for each in found} == {"class 0": 0.75, "class 1": 0.25}
    assert [float(task.score(logits, "logit", each)[0]) for each in (None, 1, 0)] == [
        -1.5,
        -1.5,
        1.5,
    ]


def test_no_tensor_is_kept_for_a_backward_pass_that_never_comes(run):
    Path("net.py").write_text(NET)
    np.save("zeros.npy", np.zeros((3, 4, 4), np.float32))
    ended = run("inspect", "net.py:light", *WORDS)
    assert ended.code == 0, ended.err
    assert (ended.out + ended.err).count("kept for backward: 0") == 1
