"""Numbers rounded to smaller formats: against torch, numpy and BatchNorms merged by torch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.nn.utils.parametrizations import weight_norm

from hookcli.passes.rounding import (
    Range,
    RoundedWeights,
    Rounding,
    explain_computed,
    run_again,
    using,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def rounded(module, rounding, norm=None):
    weights = {id(each): (0,) for each in module.parameters()}
    return RoundedWeights(module, weights, rounding, {} if norm is None else {module: norm})


@pytest.mark.parametrize("axis", [0, 1])
def test_int8_weights_are_rounded_as_torch_fakes_it_for_each_channel(axis):
    weight = torch.randn(6, 5, 3, 3) * torch.rand(6, 5, 1, 1)
    scale = weight.abs().amax([each for each in range(4) if each != axis]) / 127
    zero = torch.zeros(len(scale), dtype=torch.int32)
    faked = torch.fake_quantize_per_channel_affine(weight, scale, zero, axis, -127, 127)
    rounded = Rounding("int8").round_weight(weight, (axis,))
    torch.testing.assert_close(rounded, faked, rtol=0, atol=0)


def test_int8_weights_have_one_scale_per_tensor_if_asked_for():
    weight = torch.randn(6, 5)
    faked = torch.fake_quantize_per_tensor_affine(
        weight, float(weight.abs().max()) / 127, 0, -127, 127
    )
    rounded = Rounding("int8", per_tensor=True).round_weight(weight, (0,))
    torch.testing.assert_close(rounded, faked, rtol=0, atol=1e-7)


def test_values_beyond_the_range_are_clipped():
    values = torch.tensor([-3.0, 0.5, 3.0])
    assert Rounding("int8").round(values, torch.tensor(1.0)).tolist()[::2] == [-1, 1]
    assert Rounding("float8_e4m3").round(values, torch.tensor(1.0)).tolist() == [-1, 0.5, 1]


def test_float8_keeps_three_bits_of_the_mantissa():
    values = torch.tensor([448.0, 17.0, 19.0, 1.0625, 2.0**-9, 2.0**-11])
    rounded = Rounding("float8_e4m3").round(values, torch.tensor(448.0))
    assert rounded.tolist() == [448, 16, 20, 1, 2.0**-9, 0]


def test_float16_has_no_scale_and_overflows():
    rounded = Rounding("float16").round(torch.tensor([1e5, 1 + 2**-11]), torch.tensor(0.0))
    assert rounded.tolist() == [float("inf"), 1]


def test_a_weight_of_zeros_stays_zero():
    assert not Rounding("int8").round_weight(torch.zeros(2, 3), (0,)).any()


@pytest.mark.parametrize("percentile", [50, 90, 99.9])
def test_a_percentile_is_that_of_all_values_in_any_order(percentile):
    parts = [torch.zeros(100), torch.randn(5000), 40 * torch.randn(5000), torch.tensor([3000.0])]
    for order in (parts, parts[::-1]):
        found = Range(percentile)
        for part in order:
            found.add(part)
        exact = np.percentile(torch.cat(parts).abs().numpy(), percentile, method="higher")
        assert found.limit == pytest.approx(exact, abs=2 * 3000 / 2048)
        assert found.limit >= exact - 1e-6
    assert found.largest == 3000


def test_a_range_ignores_what_is_not_finite():
    found = Range()
    found.add(torch.tensor([1.0, float("inf"), float("nan")]))
    found.add(torch.tensor([]))
    assert found.limit == 1


def test_a_batchnorm_that_follows_is_merged_before_rounding():
    conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
    norm.running_mean, norm.running_var = torch.randn(4), torch.tensor([1e-3, 1.0, 9.0, 100.0])
    norm.weight.data = torch.tensor([-2.0, 0.0, 1.0, 0.5])
    pixels = torch.randn(2, 3, 8, 8)
    rounding = Rounding("int8", per_tensor=True)
    fused = fuse_conv_bn_weights(
        conv.weight,
        conv.bias,
        norm.running_mean,
        norm.running_var,
        norm.eps,
        norm.weight,
        norm.bias,
    )
    step = float(fused[0].detach().abs().max()) / 127
    faked = torch.fake_quantize_per_tensor_affine(fused[0], step, 0, -127, 127)
    expected = torch.nn.functional.conv2d(pixels, faked, fused[1])
    exact = norm(conv(pixels))
    with using(rounded(conv, rounding, norm).list_rounded()):
        torch.testing.assert_close(norm(conv(pixels)), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm(conv(pixels)), exact, rtol=0, atol=0)


def test_a_channel_that_the_norm_multiplies_by_zero_sets_no_scale():
    conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
    norm.weight.data = torch.tensor([0.0, 0.01, 0.01, 0.01])
    weights = rounded(conv, Rounding("int8", per_tensor=True), norm)
    merged = conv.weight.detach() * (norm.weight.detach() * (1 + norm.eps) ** -0.5).view(4, 1, 1, 1)
    faked = torch.fake_quantize_per_tensor_affine(
        merged, float(merged.abs().max()) / 127, 0, -127, 127
    )
    assert weights.error() == pytest.approx(
        float((faked - merged).norm() / merged.norm()), rel=1e-3
    )
    ((_, _, parameter),) = weights.list_rounded()
    assert parameter[0].abs().max() == 0


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_transposed_convolution_has_a_scale_for_each_output_channel(groups):
    conv, norm = nn.ConvTranspose2d(6, 12, 3, groups=groups), nn.BatchNorm2d(12).eval()
    norm.running_var = torch.logspace(-2, 2, 12)
    pixels, gains = torch.randn(2, 6, 5, 5), (norm.running_var + norm.eps).rsqrt()
    twin = copy.deepcopy(conv).requires_grad_(requires_grad=False)
    own = 12 // groups  # output channels of a group
    for channel in range(12):
        group = slice(channel // own * (6 // groups), (channel // own + 1) * (6 // groups))
        weight = twin.weight[group, channel % own] * gains[channel]
        step = float(weight.abs().max()) / 127
        faked = torch.fake_quantize_per_tensor_affine(weight, step, 0, -127, 127)
        twin.weight[group, channel % own] = faked / gains[channel]
    expected = norm(twin(pixels))
    with using(rounded(conv, Rounding("int8"), norm).list_rounded()):
        torch.testing.assert_close(norm(conv(pixels)), expected, rtol=1e-5, atol=1e-5)


def test_an_lstm_uses_its_rounded_weights_and_gets_its_own_back():
    lstm, values = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    exact = lstm(values)[0]
    weights = rounded(lstm, Rounding("int8"))
    with using(weights.list_rounded()), torch.no_grad():
        assert not torch.equal(lstm(values)[0], exact)
    assert torch.equal(lstm(values)[0], exact)
    assert 0 < weights.error() < 0.01


def test_what_a_weight_is_computed_from_cannot_be_rounded():
    for made in (weight_norm(nn.Linear(2, 2)), prune.l1_unstructured(nn.Linear(2, 2), "weight", 1)):
        assert explain_computed(made).startswith("its weights are computed from others")
    assert explain_computed(nn.Linear(2, 2)) == ""


def test_a_module_runs_again_on_what_it_was_given():
    class Two(nn.Module):
        def forward(self, one, two=None, *, three=0):
            return one, two, three

    assert run_again(Two(), {"0": 1, "three": 3}) == (1, None, 3)
    assert run_again(Two(), {"one": 1, "two": 2}) == (1, 2, 0)
    assert run_again(Two(), {"pixels": 1}) == ({"pixels": 1}, None, 0)
