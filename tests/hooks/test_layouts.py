"""Layouts inferred while a forward is followed: of what, from what, and where nothing is."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from hookcli.hooks.layers import list_watchable
from hookcli.hooks.layouts import LayoutWatcher
from hookcli.hooks.watch import watch

SIZE = (6, 6)


def inferred_in(model, pixels):
    """The names of the inferred layouts, by module path."""
    watcher = LayoutWatcher(SIZE)
    layers = list_watchable(model)
    with torch.no_grad(), watch(model, layers, watcher.started, watcher.finished):
        model(pixels)
    named = {layer.module_path: watcher.infer(layer).inferred for layer in layers}
    return {path: name for path, name in named.items() if name}


class Own(nn.Module):
    """Calls a function, and its parts before that."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return self.function(x)


def double(x):
    return 2 * x


def tokens(count, channels):
    return torch.zeros(1, count, channels)


def test_a_module_of_ones_own_has_the_layout_of_its_input():
    # seven tokens are no picture of 6 x 6, so neither type nor shape tells
    model = nn.Sequential(nn.Linear(4, 5), Own(double))
    assert inferred_in(model, tokens(7, 4)) == {"1": "NLC", "": "NLC"}


def test_a_block_has_the_layout_of_its_parts():
    model = nn.Sequential(Own(double, nn.Linear(4, 4)))
    assert inferred_in(model, tokens(7, 4)) == {"0": "NLC", "": "NLC"}


def test_a_block_that_returns_what_a_part_returned_has_its_layout_even_with_equal_axes():
    model = nn.Sequential(Own(lambda x: x, nn.Linear(7, 7)))
    assert inferred_in(model, tokens(7, 7)) == {"0": "NLC", "": "NLC"}


def test_where_a_transposed_tensor_has_the_same_shape_nothing_is_inferred():
    model = nn.Sequential(nn.Linear(7, 7), Own(lambda x: x.transpose(1, 2) + 0))
    assert inferred_in(model, tokens(7, 7)) == {}


def test_an_activation_has_the_layout_of_its_input_even_with_equal_axes():
    model = nn.Sequential(Own(double, nn.Linear(7, 7), nn.Identity()), nn.ReLU())
    del model[0].parts[1]
    assert "1" not in inferred_in(model, tokens(7, 7))
    model = nn.Sequential(nn.Linear(7, 7), nn.Flatten(2), nn.ReLU())
    assert inferred_in(model, tokens(7, 7))["2"] == "NLC"


def test_an_activation_after_a_sum_has_the_layout_of_the_layer_before_it():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.own, self.act = nn.Linear(5, 5), Own(double), nn.ReLU()

        def forward(self, x):
            return self.act(x + self.own(self.linear(x)))

    assert inferred_in(nn.Sequential(Residual()), tokens(7, 5)) == {
        "0.own": "NLC",
        "0.act": "NLC",
        "0": "NLC",
        "": "NLC",
    }


def test_parts_that_disagree_tell_nothing():
    class Torn(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.conv = nn.Linear(3, 3), nn.Conv1d(5, 5, 1)

        def forward(self, x):
            return self.linear(x) + self.conv(x)

    assert inferred_in(Torn(), tokens(5, 3)) == {}


def test_calls_that_disagree_tell_nothing():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.conv, self.own = nn.Linear(3, 3), nn.Conv1d(5, 5, 1), Own(double)

        def forward(self, x):
            return self.own(self.linear(x)), self.own(self.conv(x))

    assert "own" not in inferred_in(Shared(), tokens(5, 3))


def test_a_guess_from_a_neighbour_gives_way_to_the_tensor_that_came_in():
    class Swapped(nn.Module):
        """The activation is registered after the convolution and called after the linear layer."""

        def __init__(self):
            super().__init__()
            self.linear, self.conv, self.act = nn.Linear(4, 4), nn.Conv1d(7, 4, 1), nn.ReLU()

        def forward(self, x):
            return self.conv(self.act(self.linear(x)))

    assert inferred_in(Swapped(), tokens(7, 4))["act"] == "NLC"


def test_what_the_shape_tells_is_not_said_to_be_inferred():
    assert inferred_in(nn.Sequential(nn.Linear(4, 4), Own(double)), tokens(36, 4)) == {}


def test_no_tensor_is_kept_alive():
    made = []

    class Making(nn.Module):
        def forward(self, x):
            made.append(weakref.ref(y := x + 1))
            return y

    watcher = LayoutWatcher(SIZE)
    model = nn.Sequential(nn.Linear(4, 4), Making(), nn.Linear(4, 4))
    with torch.no_grad(), watch(model, list_watchable(model), watcher.started, watcher.finished):
        model(tokens(7, 4))
        gc.collect()
        assert [reference() for reference in made] == [None]


def test_a_module_that_raises_and_is_caught_is_followed_no_further():
    class Raising(nn.Module):
        def forward(self, _x):
            raise ValueError

    class Catching(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.raising = nn.Linear(4, 4), Raising()

        def forward(self, x):
            with pytest.raises(ValueError):  # noqa: PT011
                self.raising(x)
            return 2 * self.linear(x)

    assert inferred_in(Catching(), tokens(7, 4)) == {"": "NLC"}
