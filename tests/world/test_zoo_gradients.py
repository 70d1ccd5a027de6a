"""All classification models of torchvision forwards and backwards, every leaf observed: for ``make
test-slow``."""

from __future__ import annotations

import gc
import math
from functools import partial

import pytest
import torch
from torchvision import models as zoo

from hookcli.config import BackwardStyle, GridStyle
from hookcli.hooks.filter import select_layers
from hookcli.networks.scores import Scorer, score_output
from hookcli.passes.eager import EagerRunner
from hookcli.passes.forward import BackwardSettings, run_backward
from tests.world.test_zoo import NAMES

pytestmark = pytest.mark.slow

STYLE = BackwardStyle(targets=("7",))
SMALL = 96  # pixels, where a model takes any size


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_has_its_gradients_or_a_reason(name):
    torch.manual_seed(0)
    made = zoo.get_model(name, weights=None).eval()
    fixed = name.startswith(("vit", "maxvit"))
    size = 224 if fixed else SMALL
    pixels = torch.randn(1, 3, size, size)
    made(pixels)[0, 7].backward()
    plain = {
        n: None if p.grad is None else float(p.grad.double().norm())
        for n, p in made.named_parameters()
    }
    made.zero_grad(set_to_none=True)
    leaves = select_layers(made, ["leaf"])
    scorers = {"": Scorer(partial(score_output, style=STYLE, aim=7, categories=()))}
    settings = BackwardSettings(EagerRunner(made, leaves), GridStyle(mode="none"), scorers, STYLE)
    (result,) = run_backward(settings, ["photo"], pixels)
    assert all(parameter.grad is None for parameter in made.parameters())
    sides: dict[str, set[str]] = {}
    for record in result.records:
        call, norm = record.call, record.stats.norm
        if call.side == "param":
            expected = plain[call.id.removeprefix("param:")]
            assert (norm is None) == (expected is None), call.id
            assert norm is None or math.isclose(norm, expected, rel_tol=1e-3, abs_tol=1e-12), (
                call.id
            )
        elif norm is None:
            # the first layer's input needs none; the last of several outputs may lead nowhere
            assert record.reason, call.id
        if norm is not None or call.side != "param":
            sides.setdefault(call.layer.module_path, set()).add(call.side)
    called = {layer.module_path for layer in leaves} & result.called
    assert all("grad_output" in sides[path] for path in called)
    without = [r for r in result.records if r.stats.norm is None and r.call.side == "grad_output"]
    assert not without, [(r.call.id, r.reason) for r in without][:3]
    del made, settings, result
    gc.collect()
