"""Trial forward passes leave a model unchanged, whatever the model does to itself."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookcli.passes.unchanged import restoring, throw_dice, unchanged


class Memory:
    """An object of a model's own, such as a cache of keys."""

    def __init__(self):
        self.seen, self.values = 0, [torch.zeros(2)]


class Registry(dict[str, int]):
    """A dictionary of a library's own, which refuses to be emptied."""

    def clear(self):
        raise TypeError


class Slotted:
    __slots__ = ("parts", "seen")

    def __init__(self):
        self.seen, self.parts = 0, [1]


class Restless(nn.Module):
    """A model with one object of each kind that a forward pass may change."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("replaced", torch.zeros(2))
        self.plain = torch.zeros(3)
        self.spread = torch.zeros(1).expand(4)
        self.cache = {"deep": [{"tensors": (torch.zeros(2),)}, {1}]}
        self.ordered, self.queue = OrderedDict(a=1, b=2), deque([1], maxlen=3)
        self.memory, self.settings = Memory(), SimpleNamespace(calls=0)
        self.generator = torch.Generator().manual_seed(3)
        self.counter, self.own_dict = Counter(a=1), Registry(a=1)
        self.array, self.bytes, self.slotted = np.zeros(2), bytearray(b"ab"), Slotted()
        self.of_numpy, self.older = np.random.default_rng(0), np.random.RandomState(0)
        self.of_python = random.Random(0)
        self.register_buffer("square", torch.arange(4.0).view(2, 2))


CHANGES = {
    "a hook of a submodule": lambda net: net.inner.register_forward_hook(lambda *_: None),
    "a hook before it": lambda net: net.inner.register_forward_pre_hook(lambda *_: None),
    "a submodule": lambda net: net.add_module("more", nn.ReLU()),
    "a replaced submodule": lambda net: setattr(net, "inner", nn.Linear(2, 2)),
    "a parameter": lambda net: net.inner.register_parameter("more", nn.Parameter(torch.ones(1))),
    "a replaced parameter": lambda net: setattr(net.inner, "bias", nn.Parameter(torch.ones(2))),
    "a buffer": lambda net: net.register_buffer("more", torch.ones(1)),
    "the values of a buffer": lambda net: net.count.add_(1),
    "the memory of a buffer": lambda net: setattr(net.replaced, "data", torch.ones(5)),
    "a tensor among the attributes": lambda net: net.plain.add_(1),
    "a tensor of which all values are one": lambda net: net.spread.as_strided((1,), (1,)).fill_(1),
    "a dictionary": lambda net: net.cache.update(more=1),
    "what is deep in it": lambda net: net.cache["deep"][0]["tensors"][0].add_(1),
    "a set deep in it": lambda net: net.cache["deep"][1].add(2),
    "the order of a dictionary": lambda net: net.ordered.move_to_end("a"),
    "a queue": lambda net: net.queue.extend([2, 3, 4]),
    "an object": lambda net: setattr(net.memory, "seen", 1),
    "a list in an object": lambda net: net.memory.values.append(1),
    "a tensor in an object": lambda net: net.memory.values[0].add_(1),
    "a namespace": lambda net: setattr(net.settings, "calls", 1),
    "a counter": lambda net: net.counter.update(b=1),
    "a dictionary of its own class": lambda net: net.own_dict.update(b=1),
    "an array": lambda net: net.array.fill(1),
    "bytes": lambda net: net.bytes.extend(b"c"),
    "a slot": lambda net: setattr(net.slotted, "seen", 1),
    "a list in a slot": lambda net: net.slotted.parts.append(2),
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
    if isinstance(value, (np.ndarray, bytearray)):
        return (id(value), list(value))
    if isinstance(value, Slotted):
        return (id(value), value.seen, state(value.parts))
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


class Closed:
    """An object that lets nobody look into it."""

    @property
    def __dict__(self):  # type: ignore[override]
        raise RuntimeError("closed")


def test_what_cannot_be_looked_into_is_left_alone():
    net = Restless()
    net.closed = Closed()
    with unchanged(net):
        net.count += 1
    assert net.count.item() == 0


def test_the_values_of_parameters_are_not_copied():
    net = nn.Linear(2, 2)
    with unchanged(net):
        net.weight.data.fill_(7)
    assert net.weight.flatten().tolist() == [7.0] * 4


def test_throw_dice_changes_the_next_permutation_of_numpy():
    """After this seed NumPy draws the same permutation again if one number is drawn before it."""
    with unchanged(nn.Identity()):
        np.random.seed(11585)
        first = np.random.permutation(16).tolist()
        np.random.seed(11585)
        throw_dice()
        assert np.random.permutation(16).tolist() != first


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


@pytest.mark.parametrize(("before", "during"), [(0, 4), (6, 2), (3, 3)])
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


def test_ctrl_c_while_a_model_is_restored_stops_after_it_is_restored():
    done: list[int] = []

    def interrupt() -> None:
        done.append(1)
        if len(done) == 1:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        restoring(nn.ReLU(), [interrupt, lambda: done.append(2)]),
    ):
        pass
    assert done == [1, 1, 2]
