"""Layouts that hookcli infers in a forward pass: which layouts, and from which tensors."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from hookcli.hooks.channel_trails import follow_channels
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.layouts import LayoutWatcher
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.watch import watch
from hookcli.passes.find_operations import find_operations

SIZE = (6, 6)


def inferred_in(model, pixels):
    """The names of the inferred layouts, by module path."""
    watcher = LayoutWatcher(SIZE, follow_channels(model, pixels))
    layers = list_watchable(model)
    watching = watch(model, layers, None, watcher.finished)
    with torch.no_grad(), watching, watcher.trails:
        model(pixels)
    named = {layer.module_path: watcher.infer(layer).inferred for layer in layers}
    return {
        path: name for path, names in named.items() for tensor, name in names if tensor == "output:"
    }


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


def test_a_block_has_the_layout_of_its_parts():
    model = nn.Sequential(Own(double, nn.Linear(4, 4)))
    assert inferred_in(model, tokens(7, 4)) == {"0": "NLC", "": "NLC"}


def test_the_channels_of_a_transposed_tensor_of_the_same_shape_are_followed():
    model = nn.Sequential(nn.Linear(7, 7), Own(lambda x: x.transpose(1, 2) + 0))
    assert inferred_in(model, tokens(7, 7)) == {"1": "NCL", "": "NCL"}


def test_parts_with_different_layouts_give_the_block_no_layout():
    class Torn(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.conv = nn.Linear(3, 3), nn.Conv1d(5, 5, 1)

        def forward(self, x):
            return self.linear(x) + self.conv(x)

    assert inferred_in(Torn(), tokens(5, 3)) == {}


def test_calls_with_different_layouts_give_the_module_no_layout():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.conv, self.own = nn.Linear(3, 3), nn.Conv1d(5, 5, 1), Own(double)

        def forward(self, x):
            return self.own(self.linear(x)), self.own(self.conv(x))

    assert inferred_in(Shared(), tokens(5, 3))["own"] == "???"


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


def layouts_of_operations(function, *parts):
    """The layouts, by name, of the operations of a module that sees 6 x 6 pixels of 4 channels."""
    model, pixels = Own(function, *parts), torch.rand(1, 4, *SIZE)
    operations = [found.layer for found in find_operations(model, (pixels,))]
    layers = [*list_watchable(model), *operations]
    watcher, shapes = LayoutWatcher(SIZE, follow_channels(model, pixels)), {}

    def finished(call, output):
        shapes.setdefault(call.layer.module_path, output.shape)
        watcher.finished(call, output)

    with torch.no_grad(), watch(model, layers, None, finished), watcher.trails:
        model(pixels)
    return {
        layer.module_type: watcher.infer(layer)
        .layout_of(tuple(shapes[layer.module_path]), SIZE)
        .name
        for layer in operations
    }


def conv(channels=5):
    return nn.Conv2d(4, channels, 1)


def heads_of(x):
    heads = x.flatten(2).transpose(1, 2).reshape(1, 36, 3, 2).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(heads, heads, heads)


def look_up(x):
    index = torch.arange(5)
    return x * (index[:, None] - index[None]).sum()


def functional_layers(x):
    x = nn.functional.conv2d(x, torch.ones(3, 4, 1, 1))
    x = nn.functional.max_pool2d(x, 2)
    return nn.functional.linear(x.permute(0, 2, 3, 1), torch.ones(2, 3))


UNKNOWN = "unknown"
# a function, the part before it, and the layouts of some of its operations
OPERATIONS = {
    "unknown input": (lambda x: (x.cumprod(1) + 1).softmax(1), None, {"softmax": UNKNOWN}),
    "heads of attention": (heads_of, conv(6), {"scaled_dot_product_attention": UNKNOWN}),
    "attention over the rows of each channel": (
        lambda x: nn.functional.scaled_dot_product_attention(x, x, x),
        conv(),
        {"scaled_dot_product_attention": "NCHW"},
    ),
    "a table of indices": (look_up, conv(), {"sub": UNKNOWN}),
    "a sequence": (
        lambda x: torch.cat([x[:, :2], x + 1], 1).roll(1, 2).mean((2, 3), True),
        conv(),
        {"getitem": "NCHW", "add": "NCHW", "cat": "NCHW", "roll": "NCHW", "mean": "NCHW"},
    ),
    "a product of matrices": (lambda x: x @ torch.ones(6, 2), conv(), {"matmul": UNKNOWN}),
    "functional layers": (
        functional_layers,
        None,
        {"conv2d": "NCHW", "max_pool2d": "NCHW", "permute": "NHWC", "linear": "NHWC"},
    ),
    "all values of each channel": (lambda x: x.flatten(1), conv(), {"flatten": "NC"}),
    "one value of each channel": (lambda x: x[:, :, 0, 0], conv(), {"getitem": "NC"}),
    "a row of the first map": (lambda x: x[:, 0, 0], conv(), {"getitem": UNKNOWN}),
    "as many rows as channels": (lambda x: x[:, 0, 0], conv(6), {"getitem": UNKNOWN}),
    "an axis lost in place": (
        lambda x: x.squeeze_(0).softmax(0),
        nn.Linear(6, 5),
        {"squeeze": UNKNOWN, "softmax": UNKNOWN},
    ),
    "transposed to the same shape": (
        lambda x: x.transpose(2, 3).relu(),
        nn.Linear(6, 6),
        {"transpose": UNKNOWN, "relu": UNKNOWN},
    ),
    "another call of which nothing is known": (
        lambda x: x.relu().sum() + torch.ones(1, 2, 6, 6).relu(),
        conv(),
        {"relu": UNKNOWN},
    ),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_an_operation_has_the_layout_that_its_inputs_and_its_shape_show(case):
    function, part, expected = OPERATIONS[case]
    own = layouts_of_operations(function, *([part] if part else []))
    assert {name: own[name] for name in expected} == expected


def test_no_tensor_is_kept_alive():
    made = []

    class Making(nn.Module):
        def forward(self, x):
            made.append(weakref.ref(y := x + 1))
            return y

    watcher = LayoutWatcher(SIZE)
    model = nn.Sequential(nn.Linear(4, 4), Making(), nn.Linear(4, 4))
    with torch.no_grad(), watch(model, list_watchable(model), None, watcher.finished):
        model(tokens(7, 4))
        gc.collect()
        assert [reference() for reference in made] == [None]


def test_each_tensor_of_a_call_has_a_layout_of_its_own():
    model = nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True))
    tokens_of = model[0]
    model.forward = lambda x: model[1](*[tokens_of(x)] * 3)
    watcher = LayoutWatcher(SIZE, follow_channels(model, ()))
    layers = list_watchable(model)
    watching = watch(model, layers, watcher.started, watcher.finished)
    with torch.no_grad(), without_fast_path(), watching, watcher.trails:
        model(tokens(7, 4))
    attention = watcher.infer(next(each for each in layers if each.module_path == "1"))
    weights, mixed = ((7, 7), "output:1"), ((7, 4), "output:0")
    names = [attention.layout_of((1, *shape), SIZE, key).name for shape, key in (mixed, weights)]
    assert names == ["NLC", "unknown"]


def test_a_layer_that_permutes_takes_another_layout_than_it_returns():
    model = nn.Sequential(nn.Conv2d(3, 6, 1), Own(lambda x: x.permute(0, 2, 3, 1)))
    pixels = torch.rand(1, 3, *SIZE)
    watcher = LayoutWatcher(SIZE, follow_channels(model, pixels))
    layers = list_watchable(model)
    watching = watch(model, layers, watcher.started, watcher.finished)
    with torch.no_grad(), watching, watcher.trails:
        model(pixels)
    own = watcher.infer(next(each for each in layers if each.module_path == "1"))
    names = [own.layout_of((1, 6, 6, 6), SIZE, side).name for side in ("input:", "output:")]
    assert names == ["NCHW", "NHWC"]


def test_maps_made_of_a_vector_have_the_channels_that_the_shape_shows():
    model = nn.Sequential(nn.Linear(4, 72), nn.Unflatten(1, (8, 3, 3)), nn.ReLU())
    assert inferred_in(model, torch.rand(1, 4)) == {}
    shapes = {
        layer.module_path: layer.layout_of((1, 8, 3, 3), SIZE) for layer in list_watchable(model)
    }
    assert (shapes["1"].name, shapes["2"].name) == ("NCHW", "NCHW")


def test_a_distance_of_every_pair_has_no_layout():
    model = nn.Sequential(nn.Linear(4, 4), Own(lambda x: torch.cdist(x, x)))
    assert inferred_in(model, tokens(36, 4)) == {"1": "???", "": "???"}
