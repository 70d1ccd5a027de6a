"""Layers with LoRA of peft: each is one leaf, as it was without."""

from __future__ import annotations

import pytest

from hookcli.hooks.filter import select_layers
from hookcli.hooks.layers import list_layers
from hookcli.passes.survey import survey
from tests.hooks.test_parameters import PARAMS, Net

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize("options", [{}, {"use_dora": True}])
def test_a_layer_with_lora_is_one_leaf_and_totals_agree(options):
    peft = pytest.importorskip("peft")  # here: importing it takes two seconds
    config = peft.LoraConfig(r=2, target_modules=["conv2", "fc"], **options)
    model = peft.get_peft_model(Net(), config).eval()
    prefix = "base_model.model."
    leaves = {each.module_path: each for each in select_layers(model, ("leaf",))}
    assert {path: leaves[f"{prefix}{path}"].params for path in PARAMS} == PARAMS
    assert len(leaves) == len(PARAMS)
    plain = survey(Net().eval(), list_layers(Net()), (1, 3, 9, 9)).total
    found = survey(model, list_layers(model), (1, 3, 9, 9))
    assert (found.total.params, found.total.output_mb) == (plain.params, plain.output_mb)
    rows = {row.module_path: row for row in found.rows}
    flops = sum(rows[f"{prefix}{path}"].flops for path in PARAMS)
    assert flops == found.total.flops > plain.flops  # LoRA multiplies, too
