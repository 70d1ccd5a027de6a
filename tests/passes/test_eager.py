"""Eager PyTorch as a runner: what its observer sees, and what its plain counterpart leaves out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.edits.pruning import prune_model
from hookcli.edits.resolve import resolve_edits
from hookcli.errors import RequestError
from hookcli.hooks.filter import select_layers
from hookcli.passes.eager import EagerRunner
from hookcli.passes.runner import Batch
from tests import toy_models as toys
from tests.toy_models import pixel


def observed(runner, pixels):
    """The values that the observer saw, by call id, and what came of the batch."""
    seen = {}
    ran = runner.run(Batch(["a"], pixels), lambda call, t: seen.update({call.id: t.tolist()}))
    return seen, ran


def test_a_runner_makes_its_edits_and_its_plain_counterpart_does_not():
    model = toys.InplaceRelu().eval()
    edits = resolve_edits(model, ["conv:scale=3"], "output")
    runner = EagerRunner(model, select_layers(model, ["conv"]), edits=edits)
    seen, ran = observed(runner, pixel(1.0))
    assert (seen, ran.effects.used) == ({"conv": [[[[-6.0]], [[3.0]]]]}, {"conv:scale=3"})
    seen, ran = observed(runner.plain, pixel(1.0))
    assert (seen, ran.effects.used) == ({"conv": [[[[-2.0]], [[1.0]]]]}, set())
    assert ran.output.tolist() == [[[[0.0]], [[1.0]]]]  # in the memory of the convolution


def test_a_plain_counterpart_has_the_unpruned_weights_for_one_batch():
    """Of the weights -2 and 1, half is pruned: the smaller."""
    model = toys.InplaceRelu().eval()
    pruning = prune_model(model, ["conv=0.5"], 0)
    runner = EagerRunner(model, select_layers(model, ["conv"]), pruning=pruning)
    assert observed(runner, pixel(1.0))[0] == {"conv": [[[[-2.0]], [[0.0]]]]}
    assert observed(runner.plain, pixel(1.0))[0] == {"conv": [[[[-2.0]], [[1.0]]]]}
    assert observed(runner, pixel(1.0))[0] == {"conv": [[[[-2.0]], [[0.0]]]]}
    runner.close()
    assert [name for name, _ in model.named_parameters()] == ["conv.weight"]


def test_a_seed_repeats_the_random_numbers_of_a_batch_and_restores_the_generators():
    class Draws(nn.Module):
        def forward(self, x):
            return x + torch.rand(1)

    runner = EagerRunner(Draws().eval(), (), seed=3)
    before = torch.random.get_rng_state()
    one, two = (observed(runner, pixel(0.0))[1].output for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_only_pictures_are_placed_channels_last():
    runner = EagerRunner(toys.InplaceRelu(), (), channels_last=True)
    moved = runner.to_device(torch.zeros(1, 3, 4, 5, dtype=torch.float64))
    assert (moved.stride(), moved.dtype) == ((60, 1, 15, 3), torch.float32)
    with pytest.raises(RequestError, match="only pictures can be laid out channels last"):
        runner.to_device(torch.zeros(1, 3, 2, 4, 5))


def test_norms_with_statistics_or_in_train_mode_are_not_idle():
    idle, trained = nn.BatchNorm2d(1).eval(), nn.BatchNorm2d(1).eval()
    trained.running_var.fill_(2)
    model = nn.Sequential(nn.LazyBatchNorm2d().eval(), nn.BatchNorm2d(1), trained, idle)
    found = EagerRunner(model, ()).find_idle_norms()
    assert [path for path, is_idle in found.items() if is_idle] == ["3"]
