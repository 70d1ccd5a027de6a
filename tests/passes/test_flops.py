"""Floating point operations are counted as torch counts them, also of tensors of another class and
of operators of others."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.ao.quantization as ao
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry
from torchvision.models import get_model
from torchvision.ops import DeformConv2d, roi_align

from hookcli.hooks.layers import list_layers
from hookcli.passes.flops import FlopCounter
from hookcli.passes.survey import survey

CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_operations_are_counted_as_torch_counts_them(name):
    """On a CPU torch 2.14 has no formula for attention, so it is given the one for a GPU."""
    model = get_model(name, weights=None).eval().to("meta")
    pixels = torch.zeros(1, 3, 224, 224, device="meta")
    own, theirs = FlopCounter(), FlopCounterMode(display=False)
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    theirs.flop_registry[CPU_ATTENTION] = flop_registry[attention]
    with torch.no_grad():
        for counter in (own, theirs):
            with counter:
                model(pixels)
    assert own.total == theirs.get_total_flops() > 1e7


def test_attention_on_a_cpu_is_counted():
    """Of 5 places, 7 other places and 3 values, in 2 heads: the weights and their sums."""
    query, others = torch.ones(1, 2, 5, 3), torch.ones(1, 2, 7, 3)
    with FlopCounter() as counter:
        torch.nn.functional.scaled_dot_product_attention(query, others, others)
    assert counter.total == 2 * (2 * 5 * 7 * 3) + 2 * (2 * 5 * 7 * 3)


def count(run, *arguments):
    """Return the operations that are counted, and the operators that are not."""
    with torch.no_grad(), FlopCounter() as counter:
        run(*arguments)
    return counter.total, counter.uncounted


def dynamic(layer):
    """Return a layer with int8 weights, which takes and returns floats."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ao.quantize_dynamic(nn.Sequential(layer), {type(layer)})[0]


LSTM = 4 * 6 * (8 + 6)  # four gates of 6 units, each with 8 inputs and 6 states


@pytest.mark.parametrize(
    ("layer", "multiplied"),
    [
        (nn.LSTM(8, 6, batch_first=True), 10 * LSTM),
        (nn.GRU(8, 6, batch_first=True), 10 * 3 * 6 * (8 + 6)),
        (nn.LSTM(8, 6, num_layers=2, bidirectional=True), 2 * 10 * (LSTM + 4 * 6 * (12 + 6))),
        (nn.LSTM(8, 6, proj_size=3), 10 * (4 * 6 * (8 + 3) + 6 * 3)),
        (dynamic(nn.LSTM(8, 6)), 10 * LSTM),
        (dynamic(nn.Linear(8, 6)), 10 * 8 * 6),
    ],
    ids=["LSTM", "GRU", "two layers both ways", "projected", "dynamic LSTM", "dynamic linear"],
)
def test_each_weight_of_a_layer_is_used_once_for_each_of_ten_steps(layer, multiplied):
    data = torch.randn(2, 5, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on projections, which oneDNN lacks
        found = count(layer.eval(), data)
    assert found == (2 * multiplied, [])


IMAGE = torch.randn(1, 4, 9, 9)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize(
    ("layer", "multiplied"),
    [
        (nn.Conv2d(4, 8, 3), 7 * 7 * 8 * 4 * 9),
        (nn.Conv2d(4, 8, 3, groups=2), 7 * 7 * 8 * 2 * 9),
        (nn.ConvTranspose2d(4, 8, 2, stride=2), 9 * 9 * 4 * 8 * 4),
        (nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()), 7 * 7 * 8 * 4 * 9),
        (nn.Linear(9, 5), 4 * 9 * 9 * 5),
    ],
    ids=["convolution", "grouped", "transposed", "with ReLU", "linear"],
)
def test_a_quantized_layer_costs_what_the_float_layer_costs(layer, multiplied, quantized):
    model = quantize(layer) if quantized else layer
    assert count(model, IMAGE) == (2 * multiplied, [])


def quantize(layer):
    model = nn.Sequential(ao.QuantStub(), copy.deepcopy(layer), ao.DeQuantStub()).eval()
    if isinstance(layer, nn.Sequential):
        model = ao.fuse_modules(model, [["1.0", "1.1"]])
    model.qconfig = ao.default_qconfig
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao.prepare(model, inplace=True)
        model(IMAGE)
        return ao.convert(model)


def test_a_deformable_convolution_costs_what_a_convolution_costs():
    layer = DeformConv2d(4, 8, 3, groups=2)
    offsets, mask = torch.zeros(1, 18, 7, 7), torch.ones(1, 9, 7, 7)
    assert count(layer, IMAGE, offsets, mask) == (2 * 7 * 7 * 8 * 2 * 9, [])


def test_a_bilinear_layer_multiplies_its_weights_and_then_its_second_input():
    given = torch.randn(2, 5, 8), torch.randn(2, 5, 7)
    assert count(nn.Bilinear(8, 7, 3), *given) == (2 * 10 * 3 * (8 * 7 + 7), [])


A, B, V = torch.randn(3, 4), torch.randn(4, 5), torch.randn(4)


@pytest.mark.parametrize(
    ("multiply", "multiplied"),
    [
        (lambda: A @ V, 12),
        (lambda: V @ V, 4),
        (lambda: torch.addmv(torch.zeros(3), A, V), 12),
        (lambda: torch.zeros(3, 5).addmm_(A, B), 60),
        (lambda: torch.zeros(2, 3, 5).baddbmm_(A.expand(2, 3, 4), B.expand(2, 4, 5)), 120),
        (lambda: torch._int_mm(A.new_ones(32, 8).char(), A.new_ones(8, 8).char()), 32 * 8 * 8),
        (lambda: torch.einsum("ij,jk->ik", A, B), 60),
        (lambda: A.relu().softmax(1).cumsum(0), 0),
        (lambda: nn.functional.interpolate(IMAGE, scale_factor=2.0, mode="bilinear"), 0),
        (lambda: nn.functional.grid_sample(IMAGE, torch.zeros(1, 2, 2, 2), align_corners=True), 0),
        (lambda: roi_align(IMAGE, [torch.tensor([[0.0, 0.0, 4.0, 4.0]])], 2), 0),
    ],
)
def test_products_are_counted_and_what_multiplies_no_matrices_is_zero(multiply, multiplied):
    assert count(multiply) == (2 * multiplied, [])


@pytest.mark.parametrize(
    ("compute", "names"),
    [
        (lambda: torch.fft.rfft2(IMAGE), ["aten::_fft_r2c"]),
        (lambda: torch.cdist(A, A), ["aten::_cdist_forward"]),
        (lambda: torch.linalg.qr(A), ["aten::linalg_qr"]),
        (lambda: A.to_sparse() @ B, ["aten::mm"]),
        (lambda: torch.linalg.solve(torch.eye(2), A[:2]), ["aten::_linalg_solve_ex"]),
    ],
)
def test_operators_without_a_formula_are_named_and_not_counted_as_zero(compute, names):
    assert count(compute) == (0, names)


class Opaque(nn.Module):
    """A convolution, and an operator of another library that calls a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        self.own = Own()

    def forward(self, x):
        return self.own(self.conv(x))


class Own(nn.Module):
    def forward(self, x):
        return multiply(x)


@torch.library.custom_op("test_flops::multiply", mutates_args=())
def multiply(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def test_a_layer_with_an_unknown_operator_and_its_model_are_not_counted():
    found = survey(Opaque().eval(), list_layers(Opaque()), (1, 3, 2, 2))
    assert [(row.call_id, row.flops, row.counted_flops) for row in found.rows] == [
        ("(model)", None, 2 * 4 * 3 * 2),
        ("conv", 2 * 4 * 3 * 2, 2 * 4 * 3 * 2),
        ("own", None, 0),
    ]
    assert (found.total.flops, found.total.counted_flops) == (None, 2 * 4 * 3 * 2)
    assert found.total.uncounted == ("test_flops::multiply in own",)
