"""Attention written in many ways: hookcli finds the model's own probabilities and places.

If hookcli cannot follow an attention, it reports the reason and no places.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hookcli.hooks.layers import list_layers
from hookcli.networks.inputs import PLAIN
from hookcli.passes.attention_run import AttentionSettings, attend
from hookcli.passes.find_attention import find_attention

ADDED = "its softmax is added to other weights before it weighs the values"
BLIND = "its softmax is over values that could not be followed from the pixels"
PROJECTED = "its heads are mixed with each other before they weigh the values"
ROWS = torch.arange(16).view(4, 4)  # the tokens of 32 by 32 pixels in patches of 8 by 8


class Net(nn.Module):
    """Two heads over 16 tokens of 4 numbers each; it keeps the probabilities that it uses."""

    def __init__(self, attend, prepare=lambda pixels: pixels):
        super().__init__()
        self.attend, self.prepare = attend, prepare
        self.patch, self.qkv = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 24)

    def forward(self, x):
        tokens = self.patch(self.prepare(x)).flatten(2).transpose(1, 2)
        count = tokens.shape[1]
        q, k, v = self.qkv(tokens).reshape(1, count, 3, 2, 4).permute(2, 0, 3, 1, 4)
        self.used, out = self.attend(q, k, v)
        return out


def scores(q, k):
    return q @ k.transpose(-1, -2)


def plain(q, k, v):
    shares = scores(q, k).softmax(-1)
    return shares, shares @ v


def by_einsum(q, k, v):
    shares = torch.einsum("...id,...jd->...ij", q, k).softmax(-1)
    return shares, torch.einsum("...ij,...jd->...id", shares, v)


def by_baddbmm(q, k, v):
    q, k, v = (part[0] for part in (q, k, v))
    shares = torch.baddbmm(torch.zeros(2, 16, 16), q, k.mT, alpha=0.5).softmax(-1)
    return shares, torch.bmm(shares, v)


def by_names(q, k, v):
    shares = torch.softmax(input=torch.matmul(input=q, other=k.transpose(-1, -2)), dim=-1)
    return shares, torch.matmul(input=shares, other=v)


def over_the_rows(q, k, v):
    turned = scores(k, q).softmax(-2)
    return turned.transpose(-1, -2), turned.transpose(-1, -2) @ v


def by_sum_and_dtype(q, k, v):
    powers = (q[..., :, None, :] * k[..., None, :, :]).sum(-1, dtype=torch.float64)
    shares = powers.float().softmax(-1)
    return shares, shares @ v


def head_by_head(q, k, v):
    shares = [scores(q[:, head], k[:, head]).softmax(-1) for head in range(2)]
    return torch.stack(shares, 1), torch.stack([shares[h] @ v[:, h] for h in range(2)], 1)


def turned_by_t(q, k, v):
    shares = [(q[0, head] @ k[0, head].t()).softmax(-1) for head in range(2)]
    return torch.stack(shares), torch.stack([shares[h] @ v[0, h] for h in range(2)])


def by_einsum_without_an_arrow(q, k, v):
    pairs = [torch.einsum("id,jd", q[0, head], k[0, head]) for head in range(2)]
    shares = [torch.special.softmax(each, -1) for each in pairs]
    return torch.stack(shares), torch.stack([shares[h] @ v[0, h] for h in range(2)])


def by_products_of_numbers(q, k, v):
    shares = (q[..., :, None, :] * k[..., None, :, :]).sum(-1).softmax(-1)
    return shares, (shares[..., None] * v[..., None, :, :]).sum(-2)


def by_addmm(q, k, v):
    shares = [torch.addmm(torch.zeros(1), q[0, h], k[0, h].adjoint()).softmax(-1) for h in range(2)]
    return torch.stack(shares), torch.stack([shares[h] @ v[0, h] for h in range(2)])


def attention_of(net):
    """The attention of one forward, found with the same pixels."""
    torch.manual_seed(0)
    pixels = torch.rand(1, 3, 32, 32)
    net = net.eval()
    settings = AttentionSettings(
        net, PLAIN, lambda: pixels.clone(), tuple(list_layers(net)[:1]), draws=False, keeps=True
    )
    with torch.inference_mode(), attend(settings, "image", pixels) as attending:
        net(pixels)
    return settings, attending.finish()


@pytest.mark.parametrize(
    "attend",
    [
        plain,
        by_einsum,
        by_products_of_numbers,
        by_sum_and_dtype,
        by_baddbmm,
        by_names,
        over_the_rows,
        head_by_head,
        by_einsum_without_an_arrow,
        by_addmm,
        turned_by_t,
    ],
)
def test_the_probabilities_are_those_that_the_model_uses(attend):
    net = Net(attend)
    settings, seen = attention_of(net)
    assert seen.hidden == ()
    kept = torch.cat([call.kept.reshape(-1, 16, 16) for call in seen.calls])
    torch.testing.assert_close(kept, net.used.reshape(2, 16, 16))
    (found,) = settings.found.values()
    for call in found.calls:
        assert (
            call.places.queries.tolist() == call.places.keys.tolist() == [ROWS.flatten().tolist()]
        )
        assert call.places.query_grid == (4, 4)


def mixed_with_places(q, k, v):
    shares = 0.3 * scores(q, k).softmax(-1) + 0.7 * torch.ones(16, 16).softmax(-1)
    return shares, shares @ v


def their_difference(q, k, v):
    shares = scores(q, k).softmax(-1)
    shares -= 0.1 * scores(k, q).softmax(-1)
    return shares, shares @ v


def heads_mixed_by_a_layer(q, k, v):
    shares = scores(q, k).softmax(-1).permute(0, 2, 3, 1)
    shares = nn.functional.linear(shares, torch.eye(2) + 0.5).permute(0, 3, 1, 2)
    return shares, shares @ v


def heads_mixed_by_einsum(q, k, v):
    shares = torch.einsum("bhij,gh->bgij", scores(q, k).softmax(-1), torch.eye(2) + 0.5)
    return shares, shares @ v


def their_mean(q, k, v):
    shares = torch.stack([scores(q, k).softmax(-1), scores(k, q).softmax(-1)]).mean(0)
    return shares, shares @ v


def mean_of_the_heads(q, k, v):
    shares = scores(q, k).softmax(-1).mean(1, keepdim=True)
    return shares, shares @ v


def heads_mixed_by_products(q, k, v):
    shares = scores(q, k).softmax(-1)[:, :, None] * (torch.eye(2) + 0.5).view(1, 2, 2, 1, 1)
    return shares.sum(1), shares.sum(1) @ v


def sharpened(q, k, v):
    shares = scores(q, k).softmax(-1) ** 2
    shares = shares / shares.sum(-1, keepdim=True)
    return shares, shares @ v


def over_the_queries(q, k, v):
    shares = scores(q, k).softmax(-2)
    return shares, shares @ v


def of_three_factors(q, k, v):
    shares = torch.einsum("bhid,bhjd,d->bhij", q, k, torch.ones(4)).softmax(-1)
    return shares, shares @ v


def without_softmax(q, k, v):
    powers = scores(q, k).exp()
    shares = powers / powers.sum(-1, keepdim=True)
    return shares, shares @ v


def by_way_of_numpy(q, k, v):
    shares = torch.from_numpy(scores(q, k).numpy()).softmax(-1)
    return shares, shares @ v


@pytest.mark.parametrize(
    ("attend", "reason"),
    [
        (mixed_with_places, ADDED),
        (their_difference, ADDED),
        (heads_mixed_by_a_layer, PROJECTED),
        (heads_mixed_by_einsum, PROJECTED),
        (heads_mixed_by_products, PROJECTED),
        (mean_of_the_heads, PROJECTED),
        (their_mean, ADDED),
        (sharpened, "its softmax is changed before it weighs the values"),
        (over_the_queries, "its softmax is taken over queries, so that the weights of a query do"),
        (of_three_factors, BLIND),
        (
            without_softmax,
            "it multiplies tokens with tokens, but has no visible softmax over the product",
        ),
        (by_way_of_numpy, BLIND),
    ],
)
def test_what_is_no_single_softmax_of_a_product_is_said(attend, reason):
    _, seen = attention_of(Net(attend))
    assert seen.calls == ()
    assert all(row.reason.startswith(reason) for row in seen.hidden)
    assert len(seen.hidden) > 0


@pytest.mark.parametrize(
    ("prepare", "cells"),
    [
        (lambda pixels: pixels[:, :, 8:, :24], ROWS[1:, :3]),
        (lambda pixels: pixels.narrow(2, 0, 16), ROWS[:2]),
        (lambda pixels: pixels.flip(-1), ROWS.flip(-1)),
        (lambda pixels: pixels[:, :, ::2], ROWS[:2]),  # of twice the height each
        (lambda pixels: torch.rot90(pixels, 1, (2, 3)), ROWS.rot90()),
    ],
)
def test_tokens_of_a_part_of_the_image_are_placed_in_that_part(prepare, cells):
    settings, _ = attention_of(Net(plain, prepare))
    ((call,),) = (found.calls for found in settings.found.values())
    assert call.places.unknown == ""
    assert call.places.queries.tolist() == [cells.flatten().tolist()]


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda pixels: pixels[..., 4:-4, 4:-4], "do not divide their part of the image evenly"),
        (lambda pixels: torch.fft.fft2(pixels).real, "could not be followed"),
        (lambda pixels: pixels.take(torch.arange(3072).flip(0).view(1, 3, 32, 32)), "could not be"),
    ],
)
def test_tokens_of_which_no_cell_is_known_are_placed_nowhere(prepare, reason):
    settings, _ = attention_of(Net(plain, prepare))
    ((call,),) = (found.calls for found in settings.found.values())
    assert reason in call.places.unknown
    assert set(call.places.queries.flatten().tolist()) == {-1}


class Latents(nn.Module):
    """Learned tokens attend to the image, then to each other; then the image attends to them."""

    def __init__(self):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(5, 4))

    def forward(self, pixels):
        tokens = torch.cat([pixels.flatten(2).mT, torch.ones(1, pixels[0, 0].numel(), 1)], -1)
        z = self.latents.expand(1, -1, -1)
        z = z + (z @ tokens.mT).softmax(-1) @ tokens
        heads = z.unflatten(-1, (2, 2)).transpose(1, 2)
        shares = (heads @ heads.mT).softmax(-1)
        z = z + (shares @ heads).transpose(1, 2).flatten(2)
        return (tokens @ z.mT).softmax(-1) @ z


def test_attention_among_and_to_learned_latents_has_figures():
    torch.manual_seed(0)
    pixels = torch.randn(1, 3, 2, 4)
    layers = list_layers(model := Latents().eval())
    found = find_attention(model, PLAIN, layers, pixels)
    assert [(c.places.heads, c.places.query_grid, c.places.key_grid) for c in found.calls] == [
        (1, (), (2, 4)), (2, (), ()), (1, (2, 4), ()),
    ]  # fmt: skip
    assert [c.places.unknown[:31] for c in found.calls] == [
        "", "its tokens represent no part of", "",
    ]  # fmt: skip
    assert not found.hidden


def test_queries_computed_in_parts_are_placed_on_the_grid_of_the_keys():
    def in_parts(q, k, v):
        shares = [scores(part, k).softmax(-1) for part in q.split(4, 2)]
        return torch.cat(shares, 2), torch.cat([part @ v for part in shares], 2)

    settings, _ = attention_of(Net(in_parts))
    (found,) = settings.found.values()
    assert [call.places.queries.tolist() for call in found.calls] == [
        [row] for row in ROWS.tolist()
    ]
    assert {call.places.query_grid for call in found.calls} == {(4, 4)}


def test_an_attention_that_the_first_image_did_not_need_is_told_with_its_layer():
    class Bright(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(Net(plain), Net(plain))

        def forward(self, x):
            used = self.inner[0](x)
            return used + self.inner[1](x) if x.mean() > 1 else used

    net = Bright().eval()
    dark, bright = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32) + 1
    layers = tuple(list_layers(net))
    settings = AttentionSettings(net, PLAIN, lambda: dark.clone(), layers, draws=False, keeps=True)
    with torch.inference_mode(), attend(settings, "image", bright) as attending:
        net(bright)
    seen = attending.finish()
    assert [call.row.call_id for call in seen.calls] == ["attention:inner.0"]
    assert [(row.call_id, row.reason) for row in seen.hidden] == [
        ("attention:inner.1", "it was not called for the first image, whose tokens were followed")
    ]
