"""Trial forward passes leave a model unchanged, whatever the model does to itself."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookcli.passes.unchanged import throw_dice, unchanged


class Memory:
    """An object of a model's own, such as a cache of keys."""

    def __init__(self):
        self.seen, self.values = 0, [torch.zeros(2)]


class Slotted:
    __slots__ = ("parts", "seen")

    def __init__(self):
        self.seen, self.parts = 0, [1]


class Registry(dict[str, int]):
    """A dictionary of a library's own, which refuses to be emptied."""

    def clear(self):
        raise TypeError


class Restless(nn.Module):
    """A model with one object of each kind that a forward pass may change."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("replaced", torch.zeros(2))
        self.spread = torch.zeros(1).expand(4)
        self.cache = {"deep": [{"tensors": (torch.zeros(2),)}, {1}]}
        self.ordered, self.queue = OrderedDict(a=1, b=2), deque([1], maxlen=3)
        self.memory, self.settings = Memory(), SimpleNamespace(calls=0)
        self.generator = torch.Generator().manual_seed(3)
        self.own_dict, self.array = Registry(a=1), np.zeros(2)
        self.of_numpy, self.older = np.random.default_rng(0), np.random.RandomState(0)
        self.of_python, self.slotted = random.Random(0), Slotted()
        self.register_buffer("square", torch.arange(4.0).view(2, 2))


CHANGES = {
    "a hook of a submodule": lambda net: net.inner.register_forward_hook(lambda *_: None),
    "a replaced submodule": lambda net: setattr(net, "inner", nn.Linear(2, 2)),
    "a replaced parameter": lambda net: setattr(net.inner, "bias", nn.Parameter(torch.ones(2))),
    "the values of a buffer": lambda net: net.count.add_(1),
    "the memory of a buffer": lambda net: setattr(net.replaced, "data", torch.ones(5)),
    "a tensor of which all values are one": lambda net: net.spread.as_strided((1,), (1,)).fill_(1),
    "a set deep in it": lambda net: net.cache["deep"][1].add(2),
    "the order of a dictionary": lambda net: net.ordered.move_to_end("a"),
    "a queue": lambda net: net.queue.extend([2, 3, 4]),
    "an object": lambda net: setattr(net.memory, "seen", 1),
    "a slot": lambda net: setattr(net.slotted, "seen", 1),
    "a list in a slot": lambda net: net.slotted.parts.append(2),
    "a namespace": lambda net: setattr(net.settings, "calls", 1),
    "a dictionary of its own class": lambda net: net.own_dict.update(b=1),
    "an array": lambda net: net.array.fill(1),
    "random numbers of its own, of NumPy": lambda net: net.of_numpy.random(),
    "older ones of NumPy": lambda net: net.older.rand(),
    "random numbers of its own, of Python": lambda net: net.of_python.random(),
    "a buffer that is turned over in place": lambda net: net.square.t_(),
    "the memory of a parameter": lambda net: setattr(net.inner.weight, "data", torch.ones(3, 3)),
    "whether a parameter has a gradient": lambda net: net.inner.weight.requires_grad_(False),
    "a gradient": lambda net: setattr(net.inner.weight, "grad", torch.ones(2, 2)),
    "the mode": lambda net: net.inner.train(),
    "the class": lambda net: setattr(net, "__class__", type("Other", (Restless,), {})),
    "its own random numbers": lambda net: torch.rand(3, generator=net.generator),
    "those of torch": lambda _: torch.rand(3),
    "those of NumPy": lambda _: np.random.rand(3),
    "those of Python": lambda _: random.random(),
}


def state(value):
    """Return everything reachable from a value as text, with the identities of the objects."""
    if isinstance(value, torch.Tensor):
        return (id(value), value.tolist(), value.requires_grad, value.grad is None)
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return str(value.get_state())
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Slotted):
        return (id(value), value.seen, state(value.parts))
    if isinstance(value, np.ndarray):
        return (id(value), list(value))
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, dict):
        return (id(value), [(key, state(each)) for key, each in value.items()])
    if isinstance(value, (list, tuple, set, deque)):
        return (id(value), [state(each) for each in value])
    if isinstance(value, (nn.Module, Memory, SimpleNamespace)):
        return (id(value), type(value), state(vars(value)))
    return value


def everything(net):
    of_numpy: dict[str, Any] = np.random.get_state(legacy=False)
    numbers = (random.getstate(), torch.get_rng_state().tolist(), str(of_numpy["state"]))
    return state(net), numbers


@pytest.mark.parametrize("change", CHANGES)
def test_everything_that_changed_is_restored(change):
    net = Restless().eval()
    before = everything(net)
    with unchanged(net):
        CHANGES[change](net)
        assert everything(net) != before
    assert everything(net) == before


def test_the_values_of_parameters_are_not_copied():
    net = nn.Linear(2, 2)
    with unchanged(net):
        net.weight.data.fill_(7)
    assert net.weight.flatten().tolist() == [7.0] * 4


def test_throw_dice_changes_every_generator_and_unchanged_restores_it():
    def draw():
        return torch.rand(1).item(), random.random(), np.random.rand()

    with unchanged(nn.Identity()):
        before = draw()
    with unchanged(nn.Identity()):
        throw_dice()
        thrown = draw()
    assert draw() == before
    assert all(one != other for one, other in zip(before, thrown, strict=True))


@pytest.mark.parametrize(("before", "during"), [(0, 4), (6, 2)])
def test_a_tensor_that_was_resized_in_place_is_restored(before, during):
    model: Any = nn.Module()
    model.register_buffer("low", torch.arange(float(before)))
    model.seen = [torch.ones(before)]
    with unchanged(model):
        for tensor in (model.low, model.seen[0]):
            tensor.resize_(during).fill_(7)
    assert model.low.tolist() == [*range(before)]
    assert model.seen[0].tolist() == [1] * before
    model.low.resize_(9)


def test_the_symbols_of_an_exported_model_are_left_alone():
    """The numbers of sympy, to which such a module refers, are read-only."""
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(
        nn.Sequential(nn.ReLU()), (torch.ones(2, 1),), dynamic_shapes=shapes
    )
    model = program.module()
    with unchanged(model):
        assert model(torch.ones(3, 1)).shape == (3, 1)


def test_a_buffer_that_a_pass_with_gradients_computed_is_no_part_of_its_graph():
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)
            self.register_buffer("low", torch.empty(0))

        def forward(self, x):
            y = self.conv(x)
            self.low.resize_(4).copy_(y.mean((0, 2, 3)))
            return y

    model = Growing().eval()
    with torch.enable_grad(), unchanged(model):
        model(torch.rand(1, 3, 2, 2))
    assert (model.low.requires_grad, model.low.shape) == (False, (0,))
    with torch.no_grad():
        model(torch.rand(1, 3, 2, 2))
