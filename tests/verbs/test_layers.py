"""``hookcli.layers``: what the layers of a model cost, from Python."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import hookcli
from tests.toy_models import pointwise

MODEL = nn.Sequential(pointwise([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), nn.ReLU(), pointwise([1.0, 1.0]))


def test_layers_of_a_model_in_memory_are_rows_with_a_table():
    found = hookcli.layers(MODEL, size=4, layers="leaf", sort="flops")
    assert [(row.call_id, row.flops) for row in found.rows] == [("0", 192), ("2", 64), ("1", 0)]
    assert (found.total.params, found.input_shape) == (8, (1, 3, 4, 4))
    assert found.document().layers == found.rows
    assert " % of FLOPs " in str(found.table())
    assert (found.files, found.exit_code) == ({}, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_of_any_dtype_has_layers(dtype):
    found = hookcli.layers(copy.deepcopy(MODEL).to(dtype), size=4, layers="leaf", ops=True)
    assert [row.call_id for row in found.rows] == ["0", "1", "2"]


def test_a_long_table_is_the_upper_part_of_a_tree_and_sorting_takes_its_leaves():
    model = nn.Sequential(*(nn.Sequential(nn.Sequential(nn.ReLU())) for _ in range(20)))
    found = hookcli.layers(model, size=4)
    first, second, third, *_ = found.table().cells()["call"]
    assert (first, second, third) == ("(model)", "  0", "    0.0")
    assert (len(found.rows), len(found.table().rows)) == (61, 41)
    assert found.table().caption[0] == "left out: 20 rows below depth 2; `depth=3` shows all"
    assert len(hookcli.layers(model, size=4, depth=1).rows) == 21
    leaves = hookcli.layers(model, size=4, sort="name").rows
    assert [row.call_id for row in leaves] == [f"{number}.0.0" for number in range(20)]
