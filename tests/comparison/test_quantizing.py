"""Weights of quantized files, rounded here by hand, against those of the model."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from hookcli.comparison.quantizing import find_changed_weights
from hookcli.passes.onnx_operators import StoredWeight

NORMS = {"0": "1"}


def make():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    nn.init.normal_(norm.bias)
    layers = nn.Conv2d(3, 8, 3), norm, nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 5)
    return nn.Sequential(*layers).eval()


def quantize(model, *, folds=True):
    """Return what a file of the model holds: rounded weights, and biases as they are."""
    for path in ("0", "2", "4"):
        layer = model[int(path)]
        weight, bias = (each.detach().double().numpy() for each in (layer.weight, layer.bias))
        if folds and path == "0":
            norm = model[1]
            gain = (norm.weight / (norm.running_var + norm.eps) ** 0.5).detach().double().numpy()
            weight = weight * gain[:, None, None, None]
            bias = (bias - norm.running_mean.numpy()) * gain + norm.bias.detach().numpy()
        step = np.abs(weight).max() / 127
        whole = np.round(weight / step)
        inside = np.abs(whole) < 127
        yield StoredWeight(f"{path}.weight", whole * step, np.array(step), inside)
        name = f"{path}.weight_bias" if path == "0" else f"{path}.bias"
        yield StoredWeight(name, bias, np.zeros(()), np.ones(bias.shape, bool))


def change_epsilon(model):
    model[1].eps = 2e-3


@pytest.mark.parametrize("folds", [True, False])
def test_rounded_weights_are_those_of_the_model(folds):
    assert find_changed_weights(make(), quantize(make(), folds=folds), NORMS) == {}


@pytest.mark.parametrize(
    ("change", "path", "said"),
    [
        (lambda model: model[2].weight.data[3].mul_(1.02), "2", "2.weight is off by up to"),
        (change_epsilon, "0", "0.weight is off by up to"),
        (lambda model: model[4].bias.data[0].add_(1e-3), "4", "4.bias is off by up to 0.001"),
    ],
)
def test_a_change_below_the_noise_of_quantizing_is_found(change, path, said):
    model = make()
    other = copy.deepcopy(model)
    change(other)
    found = find_changed_weights(model, quantize(other), NORMS)
    assert [*found] == [path]
    assert found[path].startswith(said)


def test_the_weights_of_a_transposed_convolution_are_compared():
    net = nn.Sequential(nn.ConvTranspose2d(3, 8, 2), nn.BatchNorm2d(8)).eval()
    net[1].running_var.uniform_(0.5, 2)
    gain = (net[1].running_var + net[1].eps).rsqrt().double()[None, :, None, None]
    weight = (net[0].weight.detach().double() * gain).numpy()
    stored = StoredWeight("0.weight", weight, np.zeros(()), np.ones(weight.shape, bool))
    bias = (net[0].bias.detach().double() * gain.ravel()).numpy()
    biases = StoredWeight("0.bias", bias, np.zeros(()), np.ones(8, bool))
    assert find_changed_weights(net, [stored, biases], NORMS) == {}
    weight[:, 2] *= 1.02
    assert [*find_changed_weights(net, [stored, biases], NORMS)] == ["0"]


def test_a_file_without_the_bias_of_a_layer_is_found():
    weights = [each for each in quantize(make()) if each.name != "4.bias"]
    assert find_changed_weights(make(), weights, NORMS) == {"4": "the file has no 4.bias"}


def test_a_bias_that_the_model_lacks_is_found():
    model = make()
    weights = [*quantize(model)]
    model[4].bias = None
    assert [*find_changed_weights(model, weights, NORMS)] == ["4"]


def test_weights_in_the_other_order_of_axes_are_the_same():
    weights = [*quantize(make())]
    (at,) = [n for n, each in enumerate(weights) if each.name == "4.weight"]
    one = weights[at]
    weights[at] = StoredWeight(one.name, one.values.T, one.step, one.inside.T)
    assert find_changed_weights(make(), weights, NORMS) == {}
    other = make()
    other[4].weight.data[2] *= 1.02
    assert [*find_changed_weights(other, weights, NORMS)] == ["4"]


def test_a_clipped_weight_is_no_change():
    weights = [*quantize(make())]
    limit = np.abs(weights[2].values).max() * 0.7
    inside = np.abs(weights[2].values) < limit
    clipped = np.clip(weights[2].values, -limit, limit)
    weights[2] = StoredWeight(weights[2].name, clipped, weights[2].step, inside)
    assert find_changed_weights(make(), weights, NORMS) == {}


def test_a_file_whose_weights_were_all_trained_further_names_no_layer():
    model = make()
    other = copy.deepcopy(model)
    for each in other.parameters():
        each.data += 0.1 * torch.randn_like(each)
    assert find_changed_weights(model, quantize(other), NORMS) == {}
