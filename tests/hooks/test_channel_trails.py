"""Following channels through operations: which axis holds them, checked by moving one channel."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from hookcli.hooks.channel_trails import follow_channels

CONV = nn.Conv2d(3, 8, 1)


def axes_of(function, pixels=None, model=CONV):
    """The axes of the channels in what ``function`` makes of eight maps of 6 x 4."""
    pixels = torch.rand(1, 3, 6, 4) if pixels is None else pixels
    with torch.no_grad(), follow_channels(model, pixels) as trails:
        return trails.axes_of(function(model(pixels)))


def differing_axes(function, maps):
    """The axes along which the result differs in part only, if one channel of the maps is moved."""
    moved = maps.clone()
    moved[:, 3] += 1
    differs = function(moved) != function(maps)
    return tuple(axis for axis in range(differs.dim()) if _is_one(differs, axis))


def _is_one(differs, axis):
    others = [other for other in range(differs.dim()) if other != axis]
    along = differs.any(others) if others else differs
    return 0 < int(along.sum()) < len(along)


MOVES = [
    lambda x: x.relu() + 1,
    lambda x: x.permute(0, 2, 3, 1),
    lambda x: x.flatten(2),
    lambda x: x.flatten(2).transpose(1, 2),
    lambda x: x.permute(2, 3, 1, 0),
    lambda x: x.roll(2, 3),
    lambda x: x[:, torch.tensor([3, 0, 3])],
    lambda x: torch.cat([x, x.flip(3)], 2),
    lambda x: torch.stack([x, x], 1),
    lambda x: functional.max_pool2d(x, 2),
    lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: x.mean((2, 3)),
    lambda x: x.amax(2, keepdim=True),
    lambda x: x.view(1, 8, 3, 2, 2, 2).permute(0, 2, 4, 3, 5, 1).flatten(0, 2),
    lambda x: x.permute(0, 2, 3, 1).to(torch.float64).sigmoid(),
]


@pytest.mark.parametrize("function", MOVES)
def test_channels_are_where_a_moved_channel_shows(function):
    assert differing_axes(function, torch.rand(1, 8, 6, 4)) == axes_of(function)


def own_norm(x):
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-6).sqrt()
    return x * torch.rand(8)[:, None, None]


def weigh_channels(x):
    tokens = x.flatten(2)
    return (tokens @ tokens.transpose(1, 2)).softmax(2)


def write_into_zeros(x):
    made = torch.zeros(1, 24, 8)
    made[:, :12] = x.flatten(2).transpose(1, 2)[:, :12]
    return made


def attend_linearly(x):
    q, k = x.flatten(2).transpose(1, 2), x.flatten(2)
    v = functional.pad(k.transpose(1, 2), (0, 1), value=1)
    return q @ (k @ v)


CASES = {
    "learned tokens": (
        lambda x: torch.cat([torch.zeros(1, 1, 8), x.flatten(2).transpose(1, 2)], 1),
        (2,),
    ),
    "a border": (lambda x: functional.pad(x, (1, 1, 2, 2)), (1,)),
    "more channels": (lambda x: functional.pad(x, (0, 0, 0, 0, 0, 1)), (1,)),
    "a softmax over places": (lambda x: x.permute(0, 2, 3, 1).softmax(1), (3,)),
    "a layer norm": (lambda x: functional.layer_norm(x.permute(0, 2, 3, 1), [8]), (3,)),
    "a norm after what is unknown": (lambda x: functional.group_norm(x.cumprod(2), 2), (1,)),
    "a norm written out": (own_norm, (1,)),
    # four channels of each head; the axis of the heads is coarser
    "heads": (lambda x: x.flatten(2).mT.unflatten(2, (2, 4)).transpose(1, 2), (3, 1)),
    "heads joined again": (lambda x: x.unflatten(1, (2, 4)).flatten(1, 2), (1,)),
    "a sum over heads": (lambda x: x.unflatten(1, (2, 4)).sum(1), (1,)),
    "weights of channels": (weigh_channels, ()),
    "channels mixed by weights": (lambda x: weigh_channels(x) @ x.flatten(2), (1,)),
    "linear attention": (attend_linearly, None),
    "a maximum over channels": (lambda x: x.amax(1), ()),
    "an axis that may hold one channel": (lambda x: x.amax(1, keepdim=True), None),
    "one channel": (lambda x: x[:, 2], ()),
    "a mask of each box": (lambda x: x.expand(2, -1, -1, -1)[[0, 1], [3, 5]][:, None], None),
    "nothing": (lambda x: x[:0].relu(), None),
    "an unknown operation": (lambda x: x.cumprod(1), None),
    "channels written into zeros": (write_into_zeros, None),
    "windows": (lambda x: functional.unfold(x, 3, padding=1), (1,)),
    "windows folded": (lambda x: functional.fold(functional.unfold(x, 2), (6, 4), 2), (1,)),
    "a map times a vector": (lambda x: x.amax(1)[..., None] * torch.rand(5), None),
    "pixels made of channels": (lambda x: functional.pixel_shuffle(x, 2), (1,)),
    "channels made of pixels": (lambda x: functional.pixel_unshuffle(x, 2), (1,)),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operation_keeps_moves_or_loses_the_channels(case):
    function, axes = CASES[case]
    assert axes_of(function) == axes


class Attention(nn.Module):
    """Returns the weights of an attention with two heads, and the weighed values."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).unflatten(2, (3, 2, 4)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        weights = (q @ k.transpose(2, 3)).softmax(3)
        return weights, (weights @ v).transpose(1, 2).flatten(2)


def test_attention_weights_have_no_channels_and_the_weighed_values_do():
    attention = Attention()
    model = nn.Sequential(CONV, attention)
    pixels = torch.rand(1, 3, 6, 6)
    with torch.no_grad(), follow_channels(model, pixels) as trails:
        weights, mixed = model(pixels)
        assert (trails.axes_of(weights), trails.axes_of(mixed)) == ((), (2,))


def test_heads_mixed_by_a_linear_layer_are_no_channels():
    talking = nn.Linear(2, 2)
    model = nn.ModuleList([CONV, Attention(), talking])
    pixels = torch.rand(1, 3, 6, 6)
    with torch.no_grad(), follow_channels(model, pixels) as trails:
        weights, _ = model[1](CONV(pixels))
        assert trails.axes_of(talking(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)) == ()


def test_a_layer_over_positions_leaves_the_channels_open_until_a_residual_tells():
    mixing = nn.Linear(24, 24)
    model = nn.ModuleList([CONV, mixing])
    pixels = torch.rand(1, 3, 6, 4)
    with torch.no_grad(), follow_channels(model, pixels) as trails:
        maps = CONV(pixels).flatten(2)
        mixed = mixing(maps).relu()
        assert trails.axes_of(mixed) is None
        assert trails.axes_of((mixed + maps).transpose(1, 2)) == (2,)


def test_a_linear_layer_makes_channels_after_an_unknown_operation():
    linear = nn.Linear(4, 5)
    model = nn.Sequential(CONV, nn.Flatten(2), linear)
    pixels = torch.rand(1, 3, 6, 4)
    with torch.no_grad(), follow_channels(model, pixels) as trails:
        assert trails.axes_of(linear(CONV(pixels).cumprod(1))) == (3,)


def test_unbatched_maps_have_their_channels_where_batches_have_their_axis():
    assert axes_of(lambda x: x.relu(), torch.rand(3, 6, 4)) == (0,)


def test_models_without_values_are_followed_too():
    with torch.device("meta"):
        model, pixels = nn.Conv2d(3, 8, 1), torch.rand(1, 3, 6, 4)
    assert axes_of(lambda x: x.permute(0, 2, 3, 1).roll(1, 1), pixels, model) == (3,)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 3, 8, 8), 1), ((3, 8, 8), 0), ((1, 3, 4, 8, 8), 1), ((1, 4, 3, 8, 8), 2)],
)
def test_pictures_and_clips_have_their_colours_as_channels(shape, axis):
    pixels = torch.rand(shape)
    with follow_channels(CONV, pixels) as trails:
        assert trails.axes_of(pixels) == (axis,)
