"""The oracle of the channel axes, on toys whose answers are known by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.extras.channel_oracle import Truth, find_axis, follow
from tests.toy_models import NormOfMaps

pytestmark = pytest.mark.channels


class Permute(nn.Module):
    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.permute(self.axes)


class Attention(nn.Module):
    """Two heads over tokens (N, L, C), whose weights pass through a dropout."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.bias = nn.Parameter(torch.randn(2, 16, 16))
        self.told = nn.Identity()
        self.drop = nn.Dropout(0.1)
        self.joined = nn.Identity()

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.drop((q @ k.transpose(-2, -1) + self.told(self.bias)).softmax(-1))
        return self.joined((weights @ v).transpose(1, 2).reshape(1, 16, 8))


class ChannelAttention(Attention):
    """Attention between channels instead of tokens."""

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.drop((q.transpose(-2, -1) @ k).softmax(-1))
        mixed = weights @ v.transpose(-2, -1)
        return self.joined(mixed.permute(0, 3, 1, 2).reshape(1, 16, 8))


def truths(*parts, shape=(1, 3, 8, 12)):
    torch.manual_seed(0)
    return follow(nn.Sequential(*parts).eval(), torch.randn(shape))


def axes(truth: Truth):
    return set(truth.axes) if truth.known else "undecided"


def test_a_norm_on_maps_has_its_channels_where_its_parameters_show():
    seen = truths(
        nn.Conv2d(3, 6, 1), NormOfMaps(6), nn.Identity(), Permute(0, 2, 3, 1), nn.LayerNorm(6)
    )
    assert [axes(seen[str(index)]) for index in range(5)] == [{1}, {1}, {1}, {3}, {3}]


def test_channels_as_many_as_rows_and_columns_are_told_apart():
    parts = (
        nn.Conv2d(3, 8, 1),
        Permute(0, 2, 3, 1),
        nn.LayerNorm(8),
        nn.GELU(),
        Permute(0, 3, 1, 2),
    )
    seen = truths(*parts, nn.ReLU(), shape=(1, 3, 8, 8))
    assert [axes(seen[str(index)]) for index in range(6)] == [{1}, {3}, {3}, {3}, {1}, {1}]


def test_a_map_without_a_batch_has_its_channels_first():
    seen = truths(nn.Conv2d(3, 8, 1), nn.ReLU(), shape=(3, 16, 16))
    assert (axes(seen["0"]), axes(seen["1"])) == ({0}, {0})


def test_flattened_places_leave_the_channels_where_they_were():
    seen = truths(nn.Conv2d(3, 16, 1), nn.Flatten(2), Permute(0, 2, 1), nn.Linear(16, 9))
    assert [axes(seen[str(index)]) for index in range(4)] == [{1}, {1}, {2}, {2}]


def test_weights_of_attention_and_their_bias_have_no_channels():
    tokens = (nn.Conv2d(3, 8, 1), nn.Flatten(2), Permute(0, 2, 1))
    seen = truths(*tokens, Attention(), shape=(1, 3, 4, 4))
    names = ("3.qkv", "3.told", "3.drop", "3.joined", "3")
    assert [axes(seen[name]) for name in names] == [{2}, set(), set(), {2}, {2}]


def test_attention_between_channels_has_no_channels_and_returns_them():
    tokens = (nn.Conv2d(3, 8, 1), nn.Flatten(2), Permute(0, 2, 1))
    seen = truths(*tokens, ChannelAttention(), shape=(1, 3, 4, 4))
    assert [axes(seen[name]) for name in ("3.drop", "3.joined")] == [set(), {2}]


def test_the_second_output_of_multihead_attention_has_no_channels():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            tokens = x.flatten(2).transpose(1, 2)
            return self.attention(tokens, tokens, tokens)

    seen = truths(nn.Conv2d(3, 8, 1), Own(), shape=(1, 3, 4, 4))
    assert [axes(seen[f"1.attention[{key}]"]) for key in range(2)] == [{2}, set()]


def test_windows_gates_pools_and_joined_maps_keep_their_channels():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.squeeze = nn.Linear(6, 6)

        def forward(self, x):
            return x * self.squeeze(x.mean((2, 3)))[:, :, None, None].sigmoid()

    class Windows(nn.Module):
        def forward(self, x):
            rolled = torch.roll(x, (1, 1), (2, 3))
            return rolled.reshape(1, -1, 4, 2, 4, 3).permute(0, 2, 4, 3, 5, 1).reshape(16, 6, -1)

    class Joined(nn.Module):
        def forward(self, x):
            return torch.cat([x, nn.functional.pad(x, (1, 1))[..., 1:-1]], 1)

    parts = (nn.Conv2d(3, 6, 1), Gate(), nn.MaxPool2d(1), Joined(), nn.Conv2d(12, 6, 1), Windows())
    seen = truths(*parts)
    assert [axes(seen[str(index)]) for index in range(6)] == [{1}, {1}, {1}, {1}, {1}, {2}]


def test_mixed_tokens_are_called_by_either_axis_and_a_single_channel_is_undecided():
    seen = truths(nn.Conv2d(3, 6, 1), nn.Flatten(2), nn.Linear(96, 5), nn.GELU())
    assert (axes(seen["2"]), axes(seen["3"])) == ({2}, {1, 2})
    assert axes(truths(nn.Conv2d(3, 1, 1), nn.ReLU())["1"]) == "undecided"


def test_masks_and_indices_have_no_channels():
    class Mask(nn.Module):
        def forward(self, x):
            return x > 0, x.argmax(1)

    seen = truths(nn.Conv2d(3, 6, 1), Mask())
    assert [axes(seen[f"1[{key}]"]) for key in range(2)] == [set(), set()]


def test_an_unknown_operation_shows_its_channels_when_one_is_moved():
    class Waves(nn.Module):
        def forward(self, x):
            spectrum = torch.fft.rfft2(x.permute(0, 2, 3, 1), dim=(1, 2))
            return torch.fft.irfft2(spectrum, dim=(1, 2), s=(8, 12))

    class Steps(nn.Module):
        def forward(self, x):
            return torch.logcumsumexp(x, 2)

    seen = truths(nn.Conv2d(3, 6, 1), Waves(), Steps())
    assert (axes(seen["1"]), axes(seen["2"])) == ({3}, {3})


def test_a_change_shows_on_an_axis_only_if_it_moves_with_what_was_changed():
    before = torch.zeros(2, 3, 4)
    first, last = before.clone(), before.clone()
    first[:, 0], last[:, 2] = 1, 1
    assert find_axis(before, [first, last]) == 1
    assert find_axis(before, [first, first]) is None
    assert find_axis(before, [first, before]) is None
