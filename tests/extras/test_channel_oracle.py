"""The oracle of the channel axes, on toys whose answers are known by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.extras.channel_oracle import find_axis, follow

pytestmark = pytest.mark.channels


class MapNorm(nn.LayerNorm):
    """A LayerNorm on (N, C, H, W)."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Permute(nn.Module):
    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.permute(self.axes)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        return self.inner(tokens, tokens, tokens)


NORM = (nn.Conv2d(3, 6, 1), MapNorm(6), nn.Identity(), Permute(0, 2, 3, 1), nn.LayerNorm(6))
SQUARE = (nn.Conv2d(3, 8, 1), Permute(0, 2, 3, 1), nn.LayerNorm(8), nn.GELU(), Permute(0, 3, 1, 2))
FLAT = (nn.Conv2d(3, 16, 1), nn.Flatten(2), Permute(0, 2, 1), nn.Linear(16, 9), nn.Softmax(-1))


@pytest.mark.parametrize(
    ("parts", "shape", "axes"),
    [
        (NORM, (1, 3, 8, 12), [{1}, {1}, {1}, {3}, {3}]),
        (SQUARE, (1, 3, 8, 8), [{1}, {3}, {3}, {3}, {1}]),  # as many channels as rows
        ((nn.Conv2d(3, 8, 1), nn.ReLU()), (3, 16, 16), [{0}, {0}]),
        (FLAT, (1, 3, 8, 12), [{1}, {1}, {2}, {2}, set()]),  # a softmax changes everywhere
    ],
)
def test_changes_of_single_channels_show_their_axis(parts, shape, axes):
    torch.manual_seed(0)
    seen = follow(nn.Sequential(*parts).eval(), torch.randn(shape))
    assert [seen[str(index)][1] for index in range(len(parts))] == axes


def test_weights_of_attention_have_no_channels():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), Attention()).eval()
    seen = follow(model, torch.randn(1, 3, 4, 4))
    assert [seen[f"1.inner[{key}]"][1] for key in range(2)] == [{2}, set()]


def test_the_parameters_are_as_before():
    model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4)).eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    follow(model, torch.randn(1, 3, 4, 4))
    after = model.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items())


def test_a_change_shows_on_the_axis_of_which_two_indices_changed():
    before = torch.zeros(2, 3, 4)
    after = before.clone()
    after[:, [0, 2]] = 1
    assert find_axis(before, after) == 1
    assert find_axis(before, before) is None
    assert find_axis(before, before + 1) is None
    after[:, 1, 0] = 1
    assert find_axis(before, after) is None
