"""The survey of ``hookcli layers``: one row per call and output, and the traps."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

from hookcli.errors import ForwardError
from hookcli.hooks.layers import list_layers
from hookcli.passes import call
from hookcli.passes.survey import survey
from tests import toy_models as toys

ONE_PIXEL = (1, 1, 1, 1)


def rows_of(model, *paths, shape=ONE_PIXEL):
    selected = [layer for layer in list_layers(model) if layer.module_path in paths]
    assert len(selected) == len(paths)
    return survey(model.eval(), selected, shape).rows


def traps(model, *paths, shape=ONE_PIXEL):
    return {row.call_id: row.traps for row in rows_of(model, *paths, shape=shape)}


def test_a_layer_that_runs_and_returns_no_tensor_is_said_to():
    (row,) = rows_of(toys.NoTensor(), "count")
    assert (row.call_id, row.order, row.shape, row.flops) == ("count", None, None, None)
    assert (row.calls, row.traps) == (1, ("returns no tensor",))


def test_a_layer_that_does_not_run_is_said_not_to_with_the_reason():
    (row,) = rows_of(toys.UncalledBranch(), "aux")
    assert (row.order, row.calls) == (None, 0)
    assert row.traps == ("not called: auxiliary head, runs only in training mode",)


def test_what_is_written_over_is_said_with_the_layer_that_did_it():
    assert traps(toys.InplaceRelu(), "conv", "relu") == {
        "conv": ("written over in place by relu (ReLU)",),
        "relu": (),
    }


def test_a_reused_module_has_a_row_for_each_call():
    assert traps(toys.ReusedRelu(), "relu") == {
        "relu": ("called 2 times",),
        "relu#1": ("called 2 times",),
    }


def test_a_leading_axis_that_is_not_the_batch_is_said_to_be():
    assert traps(toys.FoldedLeadingAxis(), "heads") == {"heads": ("leading axis 3 is not N",)}
    assert traps(toys.SharedLeadingAxis(), "bias") == {
        "bias": ("leading axis 1 is shared by all images",)
    }


def test_a_convolution_costs_two_operations_a_multiply_add():
    conv = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False))
    (row,) = rows_of(conv, "0", shape=(1, 3, 6, 5))
    # 4 x 3 places of 4 channels, each of 3 x 3 x 3 products and sums; four bytes a value
    assert (row.shape, row.flops, row.params) == ((1, 4, 4, 3), 2 * 4 * 3 * 4 * 27, 4 * 27)
    assert row.output_mb == pytest.approx(4 * 4 * 3 * 4 / 1e6)


class CalledByOperator(nn.Module):
    """Calls a convolution inside an operator of its own."""

    def __init__(self, library):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        library.define("blind(Tensor x) -> Tensor")
        library.impl("blind", self.conv, "CPU")

    def forward(self, x):
        return torch.ops.hookcli_survey.blind(x)


def test_the_cost_of_a_layer_inside_an_uncounted_operator_is_unknown():
    with torch.library._scoped_library("hookcli_survey", "DEF") as library:
        (row,) = rows_of(CalledByOperator(library), "conv")
    assert (row.calls, row.flops) == (1, None)


def test_an_operator_that_fails_is_an_error_of_the_model():
    """The floating-point operations are counted around each operator, by code of ours."""
    with pytest.raises(ForwardError, match=r"^the model failed in "):
        rows_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(7, 2)), "1")


def test_the_modules_that_run_operators_for_a_model_exist():
    assert all(map(importlib.util.find_spec, call._NEUTRAL_OF_OURS))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0)])
def test_a_model_that_raises_is_an_error_and_keeps_no_hooks(error):
    model = toys.RaisesInside(error)
    with pytest.raises(ForwardError, match=r"^the model failed in broken"):
        rows_of(model, "conv")
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()
