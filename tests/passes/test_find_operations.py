"""The forward pass that infers layouts: what it leaves unchanged, and when it does not run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.config import ModelRequest
from hookcli.hooks.layers import list_layers
from hookcli.networks.load import LoadedModel
from hookcli.networks.own_code import OwnCode
from hookcli.passes.find_operations import infer_layouts
from hookcli.records.runs import ModelInfo


def loaded(module):
    source = OwnCode("own", lambda: module)
    prepare = source.prepare(ModelRequest("own", size=6), module)
    info = ModelInfo("own", "own", "none", trained=False, device="cpu", dtype="float32")
    return LoadedModel(info, prepare, module=module.eval(), source=source)


class Rows(nn.Module):
    """(N, 3, H, W) pixels to (N, 7, 5) tokens, in a layer whose type does not tell it."""

    def __init__(self):
        super().__init__()
        self.linear, self.own = nn.Linear(3, 5), Own()
        self.register_buffer("seen", torch.zeros(2))
        self.calls, self.cache = 0, None

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        self.cache = x.flatten(2).transpose(1, 2)[:, :7]
        return self.own(self.linear(self.cache))


class Own(nn.Module):
    def forward(self, x):
        return x + torch.rand(1)


def test_the_layout_of_a_layer_of_ones_own_is_inferred():
    model = Rows()
    layers = infer_layouts(loaded(model), list_layers(model))
    assert {layer.label: layer.inferred for layer in layers} == {
        "(model)": (("output:", "NLC"),),
        "linear": (),
        "own": (("input:", "NLC"), ("output:", "NLC")),
    }


def test_layers_whose_types_tell_cost_no_forward():
    model = Rows()
    model.forward = pytest.fail
    chosen = tuple(layer for layer in list_layers(model) if layer.module_path == "linear")
    assert infer_layouts(loaded(model), chosen) == chosen


def test_no_layout_is_inferred_if_the_model_raises():
    class Raising(Rows):
        def forward(self, x):
            super().forward(x)
            raise ValueError

    model = Raising()
    layers = infer_layouts(loaded(model), list_layers(model))
    assert [layer.inferred for layer in layers] == [(), (), ()]
    assert model.calls == 0


def test_lazy_layers_are_left_to_the_first_image():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(2), nn.ReLU())
    infer_layouts(loaded(model), list_layers(model))
    assert isinstance(model[1], nn.LazyLinear)
