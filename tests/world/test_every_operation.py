"""The operations of all 80 classifiers of torchvision, against torch's dispatcher and autograd:
minutes, so run by ``make test-slow``.

The other side knows nothing of hookcli: a dispatch mode that clones every sum and joined tensor,
and ``torch.autograd.grad`` through a model that works nowhere in place.
"""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import models as zoo

from hookcli.config import ModelRequest
from hookcli.hooks.filter import select_layers
from hookcli.hooks.gradients import observe_gradients
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


class KeptSums(TorchFunctionMode):
    """The same with the graph that they are part of."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "").strip("_").removeprefix("i") in SUMS:
            self.kept.append(output)
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


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_sums_are_those_of_autograd(name):
    loaded = load_model(ModelRequest(name, weights="random"))
    model = loaded.module
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(loaded.info.input_shape, generator=generator)
    operations = find_operations(model, (torch.zeros_like(pixels),))
    if not any(each.layer.module_type in SUMS for each in operations):
        pytest.skip("this model adds nothing")
    layers = select_layers(model, ["re:op:(add|cat)$"], operations=operations)
    gradients = {}
    with (
        without_fast_path(),
        observe_gradients(model, layers, lambda call, g: gradients.update({call.order: g.clone()})),
    ):
        model(pixels.clone())[0, 7].backward()
    for module in model.modules():
        if hasattr(module, "inplace"):
            module.inplace = False  # so that autograd can be asked for what would be overwritten
    with without_fast_path(), KeptSums() as kept:
        score = model(pixels.clone())[0, 7]
    tensors = [tensor for tensor in kept.kept if tensor.requires_grad]
    wanted = torch.autograd.grad(score, tensors, allow_unused=True)
    wanted = [gradient for gradient in wanted if gradient is not None]
    assert len(gradients) == len(wanted)
    for order, two in zip(sorted(gradients), wanted, strict=True):
        torch.testing.assert_close(gradients[order], two, rtol=1e-4, atol=1e-6)
