"""Direct calls of ``forward``, and copies of modules with hooks."""

from __future__ import annotations

import copy
import io
import pickle
import types

import pytest
import torch
from torch import nn

from hookcli.hooks.layers import list_layers
from hookcli.hooks.observe import observe
from hookcli.passes.capture import capture

ONE = torch.ones(1, 1, 2, 2)


class Calls(nn.Module):
    """Its ``forward`` is the function that it is given."""

    def __init__(self, function, layer):
        super().__init__()
        self.function = function
        self.layer = layer

    def forward(self, x):
        return self.function(self.layer, x)


class Twice(nn.Conv2d):
    """Calls the ``forward`` of its base class, and its own."""

    def forward(self, x):
        return self.forward(x[None])[0] if x.dim() == 3 else super().forward(x) * 2


class OwnCall(nn.ReLU):
    """Its ``__call__`` passes hooks by."""

    def __call__(self, x):
        return self.forward(x)


def conv(kind=nn.Conv2d):
    torch.manual_seed(0)
    return kind(1, 1, 1)


def seen_in(model, x=ONE):
    seen = []
    with observe(model, list_layers(model), lambda call, _: seen.append(call.id)):
        model(x)
    return seen


@pytest.mark.parametrize(
    ("function", "layer", "ids"),
    [
        (lambda layer, x: layer.forward(x), conv(), ["layer"]),
        (lambda layer, x: layer.forward(input=x), conv(), ["layer"]),
        (lambda layer, x: layer(x) + layer.forward(x), conv(), ["layer", "layer#1"]),
        (lambda layer, x: layer(x), conv(Twice), ["layer"]),
        (lambda layer, x: layer.forward(x[0]), conv(Twice), ["layer"]),
        (lambda layer, x: layer(x), OwnCall(), ["layer"]),
        (lambda layer, x: layer[1].forward(x), nn.ModuleList([conv(), nn.ReLU()]), ["layer.1"]),
    ],
    ids=["direct", "keyword", "both", "super", "itself", "__call__", "in a list"],
)
def test_a_call_of_forward_is_observed_exactly_once(function, layer, ids):
    assert seen_in(Calls(function, layer)) == [*ids, "(model)"]


def test_a_forward_of_the_instance_is_not_counted_twice():
    layer = conv()
    layer.forward = types.MethodType(lambda self, x: type(self).forward(self, x) * 2, layer)
    assert seen_in(Calls(lambda layer, x: layer(x), layer)) == ["layer", "(model)"]


def test_the_hooks_of_the_user_do_not_run_in_a_direct_call():
    layer = conv()
    layer.register_forward_hook(lambda *_: pytest.fail("the hook ran"))
    assert seen_in(Calls(lambda layer, x: layer.forward(x), layer)) == ["layer", "(model)"]


def test_an_edit_changes_the_output_and_the_input_of_a_direct_call():
    model = Calls(lambda layer, x: layer.forward(x), nn.ReLU())
    with capture(model, "layer", edits=["layer:zero"]):
        assert model(ONE).sum() == 0
    with capture(model, "layer", edits=["input:layer:scale=3"]):
        assert model(ONE).sum() == 12


def test_a_direct_call_has_gradients():
    model = Calls(lambda layer, x: layer.forward(x), conv())
    with capture(model, "layer", gradients=True) as captured:
        model(ONE).sum().backward()
    ids = [record.call.id for record in captured.records]
    assert "grad_output:layer" in ids
    assert "param:layer.weight" in ids


def test_a_direct_call_that_raises_ends_and_the_next_one_is_its_own():
    def twice(layer, x):
        with pytest.raises(RuntimeError):
            layer.forward(torch.ones(1, 2, 2, 2))
        return layer.forward(x)

    model = Calls(twice, nn.Sequential(conv()))
    with capture(model, "all") as captured:
        model(ONE)
    assert [record.call.id for record in captured.records][-1] == "(model)"


def test_the_class_is_as_before_when_the_last_block_has_ended():
    before = dict(vars(nn.Conv2d)), dict(vars(Twice))
    model = nn.Sequential(conv(), conv(Twice))
    one, two = capture(model, "all"), capture(model, "conv")
    first, _ = one.__enter__(), two.__enter__()
    one.__exit__(None, None, None)
    model[0].forward(ONE)
    two.__exit__(None, None, None)
    assert len(first.records) == 0
    assert (dict(vars(nn.Conv2d)), dict(vars(Twice))) == before


def test_other_modules_of_the_class_are_not_observed():
    other = conv()
    assert seen_in(Calls(lambda _layer, x: other.forward(x), conv())) == ["(model)"]


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "again",
    [copy.deepcopy, saved, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
    ids=["deepcopy", "torch.save", "pickle"],
)
def test_a_copy_made_in_the_block_is_not_observed(again):
    model = nn.Sequential(conv(), nn.ReLU())
    with capture(model, "all") as captured:
        copied = again(model)
        assert torch.equal(copied(ONE), copied[1](copied[0](ONE)))
    assert captured.records == ()
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in copied.modules())
    assert not copied[1]._forward_hooks_always_called
    assert b"hookcli" not in pickle.dumps(copied)


def test_a_copy_keeps_the_hooks_of_the_user():
    model = nn.Sequential(conv())
    model[0].register_forward_hook(_zero)
    with capture(model, "all"):
        copied = copy.deepcopy(model)
    assert [*copied[0]._forward_hooks.values()] == [_zero]
    assert copied(ONE).sum() == 0


def _zero(_module, _inputs, output):
    return output * 0
