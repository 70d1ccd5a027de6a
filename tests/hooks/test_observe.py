"""The observer sees each output as the module returned it; the model is unchanged afterwards."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from hookcli.errors import ForwardError
from hookcli.hooks.layers import list_layers
from hookcli.hooks.nested import map_tensors, named_tensors
from hookcli.hooks.observe import observe
from hookcli.hooks.watch import WriteWatcher, watch
from hookcli.records.calls import LayerInfo
from tests import toy_models as toys
from tests.toy_models import pixel

HOOK_TABLES = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks"),
)


def layers_of(model, *paths):
    return [LayerInfo(path, type(model.get_submodule(path)).__name__) for path in paths]


def watch_values(model, x, *paths, at="output"):
    seen = {}

    def observer(call, tensor):
        seen[call.id] = tensor.flatten().tolist()

    with observe(model, layers_of(model, *paths), observer, at):
        model(x)
    return seen


def watch_orders(model, x, *paths, at="output"):
    orders = {}

    def observer(call, _tensor):
        orders[call.id] = call.order

    with observe(model, layers_of(model, *paths), observer, at):
        model(x)
    return orders


def fingerprint(model):
    """Return everything about a model that observing must not change."""
    values = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        values.update(name.encode() + tensor.numpy().tobytes())
    return (
        values.hexdigest(),
        [module.training for module in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        [parameter.grad for parameter in model.parameters()],
    )


def hooks_left(model):
    return [
        (path, table)
        for path, module in model.named_modules()
        for table in HOOK_TABLES
        if getattr(module, table)
    ]


def test_a_conv_before_an_inplace_relu_keeps_its_negative_values():
    assert watch_values(toys.InplaceRelu(), pixel(1.0), "conv", "relu") == {
        "conv": [-2.0, 1.0],
        "relu": [0.0, 1.0],
    }


def test_a_conv_whose_output_gets_the_residual_added_is_seen_before_the_addition():
    assert watch_values(toys.InplaceAdd(), pixel(2.0), "conv", "") == {
        "conv": [6.0],
        "(model)": [8.0],
    }


def test_the_input_of_a_part_that_writes_over_it_is_seen_before_the_part_runs():
    assert watch_values(toys.InplaceInput(), pixel(-3.0), "relu", at="both") == {
        "input:relu": [-3.0],
        "relu": [0.0],
    }


def test_the_second_call_of_a_module_has_a_call_id_of_its_own():
    assert watch_values(toys.ReusedRelu(), pixel(1.0), "relu") == {"relu": [2.0], "relu#1": [0.0]}


def test_a_module_that_calls_itself_counts_its_calls_by_their_start():
    values = watch_values(toys.Recursive(), pixel(1.0), "", "conv")
    assert values == {
        "conv": [10.0],
        "(model)#2": [10.0],
        "(model)#1": [11.0],
        "(model)": [12.0],
    }


def test_a_call_that_raised_inside_the_model_does_not_shift_the_calls_after_it():
    model = toys.CatchesInside()
    values = watch_values(model, pixel(1.0), "", "block", "block.conv", "broken")
    assert values == {
        "block.conv": [2.0],
        "block": [2.0],
        "block.conv#1": [6.0],
        "block#1": [6.0],
        "(model)": [6.0],
    }


def test_a_block_is_before_its_parts():
    orders = watch_orders(
        toys.Nested(), pixel(1.0), "", "tail", "block", "block.conv", "block.relu"
    )
    assert sorted(orders, key=orders.get) == [
        *("(model)", "block", "block.conv", "block.relu", "tail"),
    ]


def test_calls_are_counted_from_the_beginning_of_each_block():
    model, ids = toys.InplaceAdd(), []
    for _ in range(2):
        with observe(model, layers_of(model, "conv"), lambda call, _: ids.append(call.id)):
            model(pixel(1.0))
            model(pixel(1.0))
    assert ids == ["conv", "conv#1"] * 2


def test_the_input_and_the_output_of_a_call_share_its_order():
    orders = watch_orders(toys.Nested(), pixel(1.0), "head", "block", at="both")
    assert orders == {"input:head": 1, "head": 1, "input:block": 2, "block": 2}


def test_nested_outputs_are_keyed_by_index_and_by_name():
    assert watch_values(toys.SeveralOutputs(), pixel(1.0), "split") == {
        "split[pair.0]": [1.0],
        "split[pair.1]": [2.0],
        "split[bounds.low]": [-1.0],
        "split[bounds.high]": [10.0],
        "split[list.0]": [3.0],
    }


def test_an_image_list_is_walked_to_its_tensors():
    from torchvision.models.detection.image_list import ImageList

    images = ImageList(torch.tensor([[7.0]]), [(1, 1)])
    assert [(key, t.tolist()) for key, t in named_tensors((images, 3))] == [("0.tensors", [[7.0]])]


def test_inputs_by_position_and_keyword_are_seen_together():
    assert watch_values(toys.KeywordInput(), pixel(5.0), "mixed", at="input") == {
        "input:mixed[0]": [15.0],
        "input:mixed[factor]": [10.0],
    }


def test_both_sides_of_a_call_are_seen_with_keyword_inputs_first():
    assert watch_values(toys.KeywordInput(), pixel(5.0), "named", at="both") == {
        "input:named[image]": [5.0],
        "input:named[factor]": [3.0],
        "named": [15.0],
    }


def test_a_container_that_holds_itself_is_walked_once():
    listed: list[object] = [torch.tensor([1.0])]
    listed.append({"again": listed, "more": torch.tensor([2.0])})
    found = [(key, tensor.item()) for key, tensor in named_tensors(listed)]
    assert found == [("0", 1.0), ("1.more", 2.0)]


def test_a_model_is_given_back_as_it_came_after_a_forward():
    model = toys.Nested().train()
    model.block.eval().requires_grad_(False)
    before = fingerprint(model)
    watch_values(model, pixel(1.0), "", "head", "block", "block.conv", at="both")
    assert fingerprint(model) == before
    assert hooks_left(model) == []


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_a_model_is_given_back_as_it_came_when_it_raises(error):
    model = toys.RaisesInside(error)
    model.frozen.eval()
    before = fingerprint(model)
    with pytest.raises(type(error)) as raised:
        watch_values(model, pixel(1.0), "", "conv", "broken", "broken.inner", at="both")
    assert raised.value is error
    assert fingerprint(model) == before
    assert hooks_left(model) == []


def test_no_hook_is_left_when_a_layer_is_not_the_models():
    model = toys.Nested()
    strangers = [*layers_of(model, "head", "block"), LayerInfo("elsewhere", "Conv2d")]
    with pytest.raises(ForwardError, match="elsewhere"), observe(model, strangers, print):
        pass
    assert hooks_left(model) == []


def written_by(model, pixels):
    watcher = WriteWatcher()
    with torch.no_grad(), watch(model, list_layers(model), watcher.started, watcher.finished):
        model(pixels)
    return watcher.written


class AddsInPlace(nn.Module):
    """The shortcut of torchvision's ResNet, and a branch that nobody writes over."""

    def __init__(self):
        super().__init__()
        self.conv, self.side = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)

    def forward(self, x):
        out = self.conv(x)
        out += x
        return out + self.side(x)


def test_the_module_that_writes_over_an_output_is_found():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(inplace=True), nn.Conv2d(1, 1, 1), nn.ReLU())
    assert written_by(model, torch.ones(1, 1, 2, 2)) == {"0": "by 1 (ReLU)"}


def test_an_operation_between_modules_is_put_down_to_the_block():
    written = written_by(nn.Sequential(AddsInPlace()), torch.ones(1, 1, 2, 2))
    assert written == {"0.conv": "inside 0 (AddsInPlace)"}


@dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor
    name: str = "net"


class Geometric:
    """As in e2cnn: a wrapper of one tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "key"),
    [(Frozen, "logits"), (Geometric, "tensor"), (lambda x: [Frozen(x)], "0.logits")],
)
def test_tensors_in_dataclasses_and_wrappers_are_observed_and_changed(make, key):
    model = Returns(make)
    seen = []
    with observe(model, list_layers(model), lambda call, _: seen.append(call.id)):
        before = model(pixel(1.0))
    assert seen == [f"(model)[{key}]"]
    after = map_tensors(before, lambda _key, tensor: tensor * 3)
    assert [float(tensor) for _, tensor in named_tensors(after)] == [3.0]
    assert [float(tensor) for _, tensor in named_tensors(before)] == [1.0]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda x: Normal(x, x), "torch.distributions.normal.Normal"),
        (lambda _: None, "None"),
        (lambda _: "text", "str"),
    ],
)
def test_an_output_without_a_tensor_is_named_by_its_class(make, what):
    model, called = nn.Sequential(nn.ReLU(), Returns(make)), {}
    with observe(model, list_layers(model), lambda *_: None, called=called):
        model(pixel(1.0))
    assert called == {
        "": f"returned no tensor: {what}",
        "0": "",
        "1": f"returned no tensor: {what}",
    }
