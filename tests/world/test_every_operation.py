"""The operations of all 80 classifiers of torchvision, against torch's dispatcher and autograd:
minutes, so run by ``make test-slow``.

The other side knows nothing of hookcli: a dispatch mode that clones every sum and joined tensor,
and ``torch.autograd.grad`` through a model that works nowhere in place.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import models as zoo

from hookcli.config import ModelRequest
from hookcli.hooks.filter import select_layers
from hookcli.hooks.observe import observe
from hookcli.hooks.operations import without_fast_path
from hookcli.networks.load import load_model
from hookcli.passes.find_operations import find_operations

pytestmark = pytest.mark.slow

NAMES = zoo.list_models(zoo)
SUMS = ("add", "cat")


class Sums(TorchDispatchMode):
    """The sums and joined tensors of a forward, outside torch's own modules or inside."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        aten = torch.ops.aten
        if func.overloadpacket in (aten.add, aten.add_, aten.cat):
            self.seen.append(output.clone())
        return output


def test_torchvision_has_80_classifiers():
    assert len(NAMES) == 80


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_bit_equal_and_every_sum_is_seen(name):
    loaded = load_model(ModelRequest(name, weights="random"))
    model = loaded.module
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(loaded.info.input_shape, generator=generator)
    operations = find_operations(model, (torch.zeros_like(pixels),))
    if not any(each.computes for each in operations):
        pytest.skip("this model is made of modules alone")  # alexnet and the vggs
    layers = select_layers(model, ["op:*"], operations=operations)
    with torch.inference_mode(), without_fast_path():
        plain = model(pixels.clone())
        with Sums() as sums:
            model(pixels.clone())
    seen = []

    def keep(call, tensor):
        if call.layer.module_type in SUMS:
            seen.append(tensor.clone())

    with torch.inference_mode(), observe(model, layers, keep):
        observed = model(pixels.clone())
    assert torch.equal(observed, plain)
    assert len(seen) == len(sums.seen)
    assert all(map(torch.equal, seen, sums.seen))
