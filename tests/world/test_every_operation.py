"""The operations of all 80 classifiers of torchvision, against torch's dispatcher and autograd:
minutes, so run by ``make test-slow``.

The other side knows nothing of hookcli: a dispatch mode that clones every sum and joined tensor,
and ``torch.autograd.grad`` through a model that works nowhere in place.
"""

from __future__ import annotations

import pytest
import torch

from hookcli.config import ModelRequest
from hookcli.networks.load import load_model
from tests.hooks.test_operations import SUMS, check_sums, found, gradients_of_sums
from tests.world.test_zoo import NAMES

pytestmark = pytest.mark.slow


def draw_model(name):
    loaded = load_model(ModelRequest(name, weights="random"))
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(loaded.info.input_shape, generator=generator)
    return loaded.module, pixels, found(loaded.module, pixels.shape)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_bit_equal_and_every_sum_is_seen(name):
    model, pixels, operations = draw_model(name)
    if not any(each.computes for each in operations):
        pytest.skip("this model is made of modules alone")  # alexnet and the vggs
    check_sums(model, pixels)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_sums_are_those_of_autograd(name):
    model, pixels, operations = draw_model(name)
    if not any(each.layer.module_type in SUMS for each in operations):
        pytest.skip("this model adds nothing")
    got, wanted = gradients_of_sums(model, pixels)
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
