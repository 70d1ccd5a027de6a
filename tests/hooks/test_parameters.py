"""A parametrized or quantized layer counts as the layer that it was, and is a leaf."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.ao.quantization as ao
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils import weight_norm as old_weight_norm

from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import list_layers
from hookcli.hooks.parameters import count_parameters
from hookcli.passes.survey import survey

PARAMS = {"conv1": 3 * 4 * 9 + 4, "conv2": 4 * 5 * 9 + 5, "relu": 0, "fc": 5 * 6 + 6}


class Net(nn.Module):
    def __init__(self, change=lambda layer: layer):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.conv2 = change(nn.Conv2d(4, 5, 3))
        self.relu = nn.ReLU()
        self.fc = change(nn.Linear(5, 6))

    def forward(self, x):
        return self.fc(self.relu(self.conv2(self.conv1(x))).mean((2, 3)))


class LowRank(nn.Module):
    """Adds a product of two small matrices, with parameters of its own, to a weight."""

    def __init__(self, weight):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(len(weight), 1))
        self.b = nn.Parameter(torch.zeros(1, weight[0].numel()))

    def forward(self, weight):
        return weight + (self.a @ self.b).view_as(weight)


def add_low_rank(layer):
    parametrize.register_parametrization(layer, "weight", LowRank(layer.weight))
    return layer


def old_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that the function will go
        return old_weight_norm(layer)


KINDS = {
    "weight_norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "low rank": add_low_rank,
    "bias, too": lambda layer: parametrizations.weight_norm(
        parametrizations.weight_norm(layer), "bias", dim=None
    ),
    "old weight_norm": old_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
}


def leaves_of(model):
    return {each.module_path: each.params for each in select_layers(model, ("leaf",))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_parametrized_layer_is_a_leaf_and_its_weight_counts_once(kind):
    plain, model = Net(), Net(KINDS[kind])
    assert leaves_of(model) == PARAMS
    totals = [survey(each.eval(), list_layers(each), (1, 3, 9, 9)).total for each in (plain, model)]
    assert totals[0].params == totals[1].params == sum(PARAMS.values())
    assert totals[0].output_mb == totals[1].output_mb
    assert totals[1].stored_params == sum(p.numel() for p in model.parameters())


def quantized(prepare):
    model = nn.Sequential(ao.QuantStub(), Net(), ao.DeQuantStub())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(model)


def as_int8(model):
    model = observed(model)
    model(torch.randn(1, 3, 9, 9))
    return ao.convert(model)


def for_training(model):
    model.train().qconfig = ao.get_default_qat_qconfig("fbgemm")
    return ao.prepare_qat(model).eval()


def observed(model):
    model.eval().qconfig = ao.default_qconfig
    return ao.prepare(model)


@pytest.mark.parametrize("prepare", [as_int8, for_training, observed])
def test_a_quantized_layer_is_a_leaf_and_its_packed_weights_count(prepare):
    found = leaves_of(quantized(prepare))
    assert {path: found[f"1.{path}"] for path in PARAMS} == PARAMS
    assert found.keys() == {"0", *(f"1.{path}" for path in PARAMS), "2"}


def test_a_fused_layer_with_a_norm_of_its_own_is_one_leaf():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    model = ao.fuse_modules_qat(model, [["0", "1"]])
    model.qconfig = ao.get_default_qat_qconfig("fbgemm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ao.prepare_qat(model)
    assert leaves_of(model) == {"0": 3 * 4 * 9 + 4 + 4 + 4, "1": 0}


def test_recurrent_layers_with_int8_weights_have_the_parameters_of_the_float_ones():
    float_model = nn.Sequential(nn.LSTM(8, 6, num_layers=2), nn.GRU(6, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ao.quantize_dynamic(copy.deepcopy(float_model), {nn.LSTM, nn.GRU})
    expected = [sum(p.numel() for p in each.parameters()) for each in float_model]
    assert [count_parameters(each) for each in model] == expected
    assert leaves_of(model) == {"0": expected[0], "1": expected[1]}


class BaseTunerLayer:
    """Stands for the base class of peft's adapters; tests/extras/test_peft.py has the real one."""


BaseTunerLayer.__module__ = "peft.tuners.tuners_utils"


class Adapter(nn.Module, BaseTunerLayer):
    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer
        self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 1)})

    def forward(self, x):
        return self.base_layer(x)


def test_an_adapter_and_the_layer_that_it_adapts_are_one_leaf():
    model = nn.Sequential(Adapter(nn.Linear(4, 3)), nn.ReLU())
    assert leaves_of(model) == {"0": 4 * 3 + 3, "1": 0}
    assert (
        count_parameters(model[0].get_submodule("lora_A")) == 4 + 1
    )  # as a part that is chosen by its name
