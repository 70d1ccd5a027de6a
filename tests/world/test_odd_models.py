"""Attention and operations of unusual models, compared with the values that the models keep.

Each model keeps the probabilities that it uses; the expected places of tokens are worked out by
hand.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import hookcli
from hookcli.hooks.layers import list_layers
from hookcli.networks.inputs import PLAIN
from hookcli.passes.attention_run import AttentionSettings, attend

PATCHES = torch.arange(16).view(4, 4)  # of 32 by 32 pixels, 8 by 8 each


def tokens_of(maps):
    return maps.flatten(2).transpose(1, 2)


class Odd(nn.Module):
    """Two heads over tokens of 8 numbers."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 8, 8)
        self.qkv, self.other = nn.Linear(8, 24), nn.Linear(8, 24)
        self.used = []

    def split(self, tokens, layer=None):
        images, count, _ = tokens.shape
        parts = (layer or self.qkv)(tokens).reshape(images, count, 3, 2, 4)
        return parts.permute(2, 0, 3, 1, 4)

    def weigh(self, q, k, v):
        shares = (q @ k.transpose(-1, -2) * 0.5).softmax(-1)
        self.used.append(shares.detach())
        return (shares @ v).transpose(1, 2).flatten(2)


class TwoInOneModule(Odd):
    def forward(self, x):
        tokens = tokens_of(self.patch(x))
        tokens = tokens + self.weigh(*self.split(tokens))
        small = tokens_of(self.patch(functional.interpolate(x, scale_factor=0.5)))
        q, (_, k, v) = self.split(tokens, self.other)[0], self.split(small, self.other)
        return self.weigh(q, k, v).mean(1)


class WindowAfterWindow(Odd):
    def forward(self, x):
        maps = self.patch(x)
        windows = [
            self.weigh(*self.split(tokens_of(maps[:, :, top : top + 2, left : left + 2])))
            for top in (0, 2)
            for left in (0, 2)
        ]
        return torch.cat(windows, 1).mean(1)


class PooledKeys(Odd):
    def forward(self, x):
        maps = self.patch(x)
        pooled = tokens_of(functional.max_pool2d(maps, 2))
        q, (_, k, v) = self.split(tokens_of(maps))[0], self.split(pooled)
        return self.weigh(q, k, v).mean(1)


class RowsThenColumns(Odd):
    def forward(self, x):
        rows = self.patch(x).permute(0, 2, 3, 1).flatten(0, 1)
        rows = self.weigh(*self.split(rows))
        columns = rows.transpose(0, 1)
        return self.weigh(*self.split(columns, self.other)).mean((0, 1))[None]


class WholeAndMiddle(Odd):
    """Has the tokens of the image and, a second time, the tokens of its middle."""

    def forward(self, x):
        parts = [tokens_of(self.patch(part)) for part in (x, x[:, :, 8:24, 8:24])]
        return self.weigh(*self.split(torch.cat(parts, 1))).mean(1)


ALL = [PATCHES.flatten().tolist()]
QUARTERS = [[0, 1, 2, 3]]
WINDOWS = [
    PATCHES[top : top + 2, left : left + 2].flatten().tolist() for top in (0, 2) for left in (0, 2)
]
IMAGE, CLIP = (1, 3, 32, 32), (1, 3, 4, 32, 32)
FLOAT, HALF = torch.float32, torch.float16
MODELS = [
    (TwoInOneModule, IMAGE, FLOAT, [(ALL, ALL), (ALL, QUARTERS)]),
    (WindowAfterWindow, IMAGE, FLOAT, [([each], [each]) for each in WINDOWS]),
    (PooledKeys, IMAGE, FLOAT, [(ALL, QUARTERS)]),
    (RowsThenColumns, IMAGE, HALF, [(PATCHES.tolist(),) * 2, (PATCHES.T.tolist(),) * 2]),
    (WholeAndMiddle, IMAGE, FLOAT, [([ALL[0] + [5, 6, 9, 10]],) * 2]),
]  # fmt: skip


def prepare(kind, shape, dtype):
    torch.manual_seed(0)
    return kind().eval().to(dtype), torch.rand(shape).to(dtype)


@pytest.mark.parametrize(("kind", "shape", "dtype", "places"), MODELS)
def test_the_attention_and_operations_of_odd_models_are_what_they_use(kind, shape, dtype, places):
    net, pixels = prepare(kind, shape, dtype)
    settings = AttentionSettings(
        net, PLAIN, lambda: pixels, tuple(list_layers(net)[:1]), draws=False, keeps=True
    )
    with torch.inference_mode(), attend(settings, "image", pixels) as attending:
        net.used.clear()
        net(pixels)
    seen, (found,) = attending.finish(), settings.found.values()
    assert seen.hidden == ()
    for call, used in zip(seen.calls, net.used, strict=True):
        kept = call.kept.reshape(used.shape).to(dtype)
        torch.testing.assert_close(kept, used, rtol=0, atol=0)
    at = [(call.places.queries.tolist(), call.places.keys.tolist()) for call in found.calls]
    assert at == [tuple(each) for each in places]
    with (
        torch.inference_mode(),
        hookcli.capture(net, layers="op:softmax", example=pixels, keep=True) as captured,
    ):
        net.used.clear()
        net(pixels)
    assert len(captured.records) == len(net.used) == len(places)
    for record, used in zip(captured.records, net.used, strict=True):
        torch.testing.assert_close(captured.tensors[record.call.id], used, rtol=0, atol=0)
