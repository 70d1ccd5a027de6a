"""Attention probabilities compared with those of torch, torchvision and timm themselves, and with
Swin's windows computed pixel by pixel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torchvision.models.swin_transformer import ShiftedWindowAttention
from torchvision.models.video.mvit import MSBlockConfig, MViT
from torchvision.models.video.swin_transformer import (
    SwinTransformer3d,
)

from hookcli.activations.attention_maps import (
    CLASS_TOKEN,
    cell_of,
    measure_attention,
    query_map,
)
from hookcli.activations.attention_probabilities import call_probabilities
from hookcli.activations.token_places import NO_PLACE, PADDING, TokenPlaces
from hookcli.records.calls import Call, LayerInfo
from tests.attention_calls import attention_of, without_fast_path
from tests.small_models import build_small

SDPA = "scaled_dot_product_attention"
MULTI_HEAD = "multi_head_attention_forward"
WINDOWS = {
    "img_size": 64,
    "window_size": 4,
    "depths": (2, 2),
    "num_heads": (2, 4),
    "embed_dim": 24,
}
TIMM: dict[str, dict[str, Any]] = {
    "beit_base_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 4},
    "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
    "pvt_v2_b0": {"depths": (1, 1, 1, 1)},
    "samvit_base_patch16": {
        "img_size": 96, "depth": 2, "embed_dim": 48, "num_heads": 4, "window_size": 4,
        "global_attn_indexes": (1,),
    },
    "swinv2_cr_tiny_ns_224": WINDOWS,
    "twins_svt_small": {
        "img_size": 112, "depths": (2, 2), "embed_dims": (16, 32), "num_heads": (2, 4),
        "mlp_ratios": (2, 2), "sr_ratios": (4, 2),
    },
    "vit_small_patch14_reg4_dinov2": {"img_size": 56, "depth": 2},
}  # fmt: skip


# Functions of torch: the output is the probabilities times the values


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.3},
        {"is_causal": True},
        {"attn_mask": torch.rand(2, 1, 5, 7) * 3},
        {"attn_mask": torch.rand(5, 7) > 0.4},
        {"attn_mask": torch.tensor([[[[False] * 7] + [[True] * 7] * 4]] * 2)},
    ],
    ids=["scale", "causal", "numbers", "mask", "a query that sees nothing"],
)
def test_the_output_of_scaled_dot_product_attention_is_probabilities_times_values(options):
    query, key, value = random(2, 4, 5, 8), random(2, 4, 7, 8), random(2, 4, 7, 8)
    output = functional.scaled_dot_product_attention(query, key, value, **options)
    shares = call_probabilities(SDPA, (query, key, value), options, output)
    assert (shares @ value - output).abs().max() < 1e-6


def test_a_group_of_heads_shares_its_keys():
    query, key, value = random(1, 6, 5, 8), random(1, 2, 5, 8), random(1, 2, 5, 8)
    options: dict[str, Any] = {"enable_gqa": True}
    output = functional.scaled_dot_product_attention(query, key, value, **options)
    shares = call_probabilities(SDPA, (query, key, value), options, output)
    assert (shares @ value.repeat_interleave(3, 1) - output).abs().max() < 1e-6


def test_queries_and_keys_in_half_precision_are_multiplied_in_float32():
    query, key = random(1, 1, 3, 64).half() * 4, random(1, 1, 4, 64).half()
    shares = call_probabilities(SDPA, (query, key, key), {}, None)
    scores = query.double() @ key.double().mT / 8
    assert (shares - scores.softmax(-1)).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ({}, {}),
        ({"batch_first": True}, {}),
        ({"kdim": 6, "vdim": 10}, {}),
        ({"add_bias_kv": True}, {}),
        ({}, {"attn_mask": torch.rand(6, 5, 5)}),
        ({}, {"key_padding_mask": torch.tensor([[False] * 4 + [True], [False] * 5])}),
    ],
)
def test_multihead_attention_says_the_same_when_asked_for_its_weights(made, given):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(12, 3, **made).eval()
    query = random(5, 2, 12)
    key, value = (random(5, 2, made.get(name, 12)) for name in ("kdim", "vdim"))
    inputs = [part.transpose(0, 1) if module.batch_first else part for part in (query, key, value)]
    expected = module(*inputs, need_weights=True, average_attn_weights=False, **given)[1]
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            output = function(*args, **(kwargs or {}))
            if function is functional.multi_head_attention_forward:
                seen.append(call_probabilities(MULTI_HEAD, args, kwargs, output))
            return output

    with without_fast_path(), Watch():
        module(*inputs, need_weights=False, **given)
    assert (seen[0] - expected).abs().max() < 1e-6


# torchvision


@pytest.mark.parametrize("name", ["vit", "swin_v2", "maxvit"])
def test_all_attention_of_a_query_is_on_the_image_or_on_named_tokens(name):
    for call in attention_of(build_small(name), random(2, 3, 64, 64)):
        for one in call.ordered:
            assert (one.sum(-1) - 1).abs().max() < 1e-5
            assert one.shape == (
                call.places.windows,
                call.places.heads,
                call.places.queries.shape[1],
                call.places.keys.shape[1],
            )


def test_a_model_without_attention_has_none():
    assert attention_of(build_small("convnext"), random(1, 3, 64, 64)) == []


@pytest.mark.parametrize(("size", "shift"), [((8, 8), 0), ((7, 10), 2), ((3, 9), 2)])
def test_a_window_of_swin_is_what_its_pixels_give_one_by_one(size, shift):
    """The map of each patch on the image, against loops over pixels: shift, mask and padding."""
    torch.manual_seed(1)
    attention = ShiftedWindowAttention(6, [4, 4], [shift, shift], 2).eval()
    with torch.no_grad():
        attention.relative_position_bias_table.normal_()
        attention.qkv.bias.normal_()
    pixels = random(1, 6, *size)
    model = nn.Sequential(ChannelsLast(), attention)
    (call,) = attention_of(model, pixels)
    expected = swin_by_hand(attention, pixels[0].permute(1, 2, 0).numpy(), shift)
    for cell in range(size[0] * size[1]):
        found = query_map(call.ordered[0], call.places, cell)
        assert np.abs(found.numpy() - expected[cell]).max() < 1e-5


def test_maxvit_looks_into_blocks_then_across_the_grid():
    """16 by 16 cells and partitions of 4 by 4: neighbours first, then every fourth cell."""
    blocks, across = attention_of(build_small("maxvit"), random(1, 3, 64, 64))[:2]
    inside = np.zeros((16, 16), bool)
    inside[4:8, 8:12] = True
    apart = np.zeros((16, 16), bool)
    apart[1::4, 2::4] = True
    cell = 5 * 16 + 10  # row 5, column 10
    for call, expected in ((blocks, inside), (across, apart)):
        found = query_map(call.ordered[0], call.places, cell)
        assert ((found > 0).numpy() == expected).all()


def test_a_token_of_a_clip_is_in_a_frame_too():
    """4 frames of 16 by 16 in patches of 2 by 4 by 4; windows hold 2 by 2 by 2 of the 2 by 4 by 4
    cells, and the second block moves them by one."""
    torch.manual_seed(0)
    model = SwinTransformer3d([2, 4, 4], 16, [2], [2], [2, 2, 2]).eval()
    first, second = attention_of(model, random(1, 3, 4, 16, 16))
    assert first.places.query_grid == first.places.key_grid == (2, 4, 4)
    cells = np.arange(32).reshape(2, 4, 4)
    blocks = [cells[:, r : r + 2, c : c + 2].ravel().tolist() for r in (0, 2) for c in (0, 2)]
    assert first.places.queries.tolist() == blocks
    seen = query_map(second.ordered[0], second.places, cells[1, 1, 2])
    assert (seen[0].numpy() > 1e-9).nonzero()[1].tolist() == [1, 1, 2, 2] * 2
    assert (seen[0].numpy() > 1e-9).nonzero()[2].tolist() == [1, 2, 1, 2] * 2


def test_pooled_keys_of_a_clip_are_fewer_than_its_queries():
    torch.manual_seed(0)
    block = MSBlockConfig(2, 16, 16, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2])
    model = MViT((32, 32), 4, [block, block], False, False, False, False).eval()
    call, _ = attention_of(model, random(1, 3, 4, 32, 32))
    assert (call.places.query_grid, call.places.key_grid) == ((2, 8, 8), (2, 4, 4))
    assert call.places.queries[0].tolist() == [NO_PLACE, *range(128)]
    assert (call.raw[0].sum(-1) - 1).abs().max() < 1e-5


# timm


@pytest.mark.parametrize("name", TIMM)
def test_timms_fused_attention_has_the_probabilities_of_the_one_that_is_not_fused(name):
    assert difference_from_unfused(name, TIMM[name]) < 1e-5


@pytest.mark.parametrize(
    ("name", "prefix", "heads"),
    [
        ("vit_small_patch14_reg4_dinov2", 5, 6),
        ("twins_svt_small", 0, 2),
        ("samvit_base_patch16", 0, 4),
    ],
)
def test_a_token_is_at_the_pixels_that_it_is_made_of(name, prefix, heads):
    """If the pixels of one cell change, only the first query of this cell changes."""
    model = build_timm(name, TIMM[name])
    size = TIMM[name]["img_size"]
    pixels = random(1, 3, size, size)
    (before, *_) = attention_of(model, pixels)
    rows, columns = before.places.query_grid
    row, column = rows // 2, columns - 1
    side = size // rows
    changed = pixels.clone()
    changed[..., row * side : (row + 1) * side, column * side : (column + 1) * side] += 1
    (after, *_) = attention_of(model, changed)
    queries = before.places.queries
    assert (int((queries == NO_PLACE).sum()), before.places.heads) == (prefix, heads)
    difference = before.places.arrange(before.arguments[0] - after.arguments[0])
    moved = difference.abs().amax((1, 3)) > 0  # over heads and channels
    assert set(queries[moved].tolist()) == {row * columns + column}


@pytest.mark.parametrize("fused", [True, False])
def test_tokens_keep_their_places_when_their_channels_are_mixed(fused):
    class ChannelsThenPlaces(nn.Module):
        def forward(self, pixels):
            maps = pixels.flatten(2)
            if fused:
                mixed = functional.scaled_dot_product_attention(maps, maps, maps)
            else:
                mixed = (maps @ maps.transpose(1, 2)).softmax(-1) @ maps
            tokens = mixed.transpose(1, 2)
            return functional.scaled_dot_product_attention(tokens, tokens, tokens)

    (call,) = attention_of(ChannelsThenPlaces(), random(1, 3, 4, 3))
    assert call.places.queries.tolist() == call.places.keys.tolist() == [list(range(12))]


def test_a_softmax_that_weighs_channels_or_classes_is_no_attention():
    class Gates(nn.Module):
        """Selective kernels, a class head, and classes compared with texts."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 4, 4)
            self.texts = nn.Parameter(torch.rand(5, 8))

        def forward(self, pixels):
            maps = self.conv(pixels)
            gates = maps.mean((2, 3), keepdim=True).view(-1, 2, 4).softmax(1)
            mixed = (maps.unflatten(1, (2, 4)) * gates[..., None, None]).sum(1)
            tokens = maps.flatten(2).transpose(1, 2)
            classes = (tokens @ self.texts.T).softmax(-1)
            return mixed, (tokens.mean(1) @ self.texts.T).softmax(-1), classes

    assert attention_of(Gates(), random(1, 3, 16, 16)) == []


def test_scores_that_are_transposed_before_the_softmax_are_put_right():
    class Transposed(nn.Module):
        def forward(self, pixels):
            tokens = pixels.flatten(2).transpose(1, 2)
            scores = (tokens[:, :6] @ tokens.transpose(1, 2)).transpose(1, 2)
            return scores.softmax(-1)

    (call,) = attention_of(Transposed(), random(1, 3, 4, 3))
    assert call.places.queries.tolist() == [list(range(12))]
    assert call.places.keys.tolist() == [list(range(6))]


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda tokens: tokens.sort(1).values,
        lambda tokens: tokens.contiguous().view(torch.int32).view(torch.float32),
        lambda tokens: tokens.cumsum(1)[:, ::2].logsumexp(0)[None],
    ],
    ids=["sorted", "seen as integers", "summed up"],
)
def test_tokens_that_cannot_be_followed_are_said_to_have_no_known_place(shuffle):
    class Shuffled(nn.Module):
        def forward(self, pixels):
            tokens = shuffle(pixels.flatten(2).transpose(1, 2))
            return functional.scaled_dot_product_attention(tokens, tokens, tokens)

    (call,) = attention_of(Shuffled(), random(1, 3, 4, 3))
    assert call.places.unknown
    figures = measure_heads(call.ordered[0], call.places)
    assert (figures.prefix_share, figures.distance) == ((), ())
    assert figures.entropy[0] > 0
    assert query_map(call.ordered[0], call.places, 0) is None


@pytest.mark.parametrize("held", ["parameter", "list", "made in the forward"])
def test_a_class_token_was_learned_wherever_the_model_holds_it(held):
    class Prefixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            token = torch.ones(1, 1, 3)
            if held == "parameter":
                self.token = nn.Parameter(token)
            else:
                self.token = [token] if held == "list" else None

        def forward(self, pixels):
            held_one = torch.ones(1, 1, 3) if self.token is None else self.token
            token = held_one[0] if isinstance(held_one, list) else held_one
            tokens = torch.cat([token * 2, pixels.flatten(2).transpose(1, 2)], 1)
            return functional.scaled_dot_product_attention(tokens, tokens, tokens)

    (call,) = attention_of(Prefixed(), random(1, 3, 4, 3))
    assert call.places.queries.tolist() == [[NO_PLACE, *range(12)]]


def behind_a_blank(tokens):
    whole = torch.zeros(1, 13, 3)
    whole[:, 1:] = tokens
    return whole


def with_the_first_replaced(tokens):
    whole = torch.cat([tokens[:, :1], tokens], 1)
    whole[:, 0] = 0.5
    return whole


def with_some_channels_set(tokens):
    tokens[..., :2] = 0
    return tokens


def with_negative_values_set(tokens):
    tokens[tokens < 0] = 0
    return tokens


def with_some_turned(tokens):
    tokens[:, 3:] = tokens[:, 3:] * 2
    return tokens


def copied_into_a_part(tokens):
    whole = torch.zeros(1, 13, 3)
    whole[:, 1:].copy_(tokens)
    return whole


def written_where_values_tell(tokens):
    tokens[:, tokens[0, :, 0].argsort()] = tokens.clone()
    return tokens


def best_of(tokens):
    return tokens.norm(dim=-1).topk(12, dim=1).indices


ALL = [*range(12)]


@pytest.mark.parametrize(
    ("change", "queries"),
    [
        (behind_a_blank, [NO_PLACE, *ALL]),
        (with_the_first_replaced, [NO_PLACE, *ALL]),
        (with_some_channels_set, ALL),
        (with_negative_values_set, ALL),
        (with_some_turned, ALL),
        (lambda tokens: torch.cat([tokens, torch.ones(1, 12, 2)], -1), ALL),  # learned channels
        (lambda tokens: torch.cat([torch.ones(1, 12, 2), tokens], dim=2), ALL),
        (lambda tokens: tokens[:, torch.tensor([7, 2])], [4, 2]),  # of two by three cells
        (lambda tokens: torch.cat([torch.ones(1, 1, 3), tokens[:, :1]], 1), [NO_PLACE] * 2),
    ],
)
def test_tokens_keep_their_places_when_they_are_written_joined_or_chosen(change, queries):
    assert places_after(change).queries.tolist() == [queries]


@pytest.mark.parametrize(
    "change",
    [
        copied_into_a_part,
        written_where_values_tell,
        lambda tokens: tokens.gather(1, best_of(tokens)[..., None].expand(-1, -1, 3)),
        lambda tokens: tokens[:, best_of(tokens)[0]],
        lambda tokens: tokens.repeat_interleave(best_of(tokens)[0].argsort() + 1, 1)[:, :5],
    ],
)
def test_tokens_that_values_choose_or_parts_hold_have_no_known_place(change):
    assert places_after(change).unknown.endswith("could not be followed from the pixels")


def test_attention_among_learned_tokens_is_said_to_be_about_no_part_of_the_image():
    places = places_after(lambda _tokens: torch.ones(1, 5, 3))
    assert places.unknown.startswith("its tokens represent no part of the image")


# Windows in the batch axis


@pytest.mark.parametrize("options", [{}, {"add_zero_attn": True}], ids=["plain", "a zero key"])
def test_multihead_attention_is_measured_in_all_windows_of_an_image(options):
    """4 by 6 cells in windows of 2 by 2, as rows of the batch of an attention module."""

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

        def forward(self, pixels):
            cells = pixels.unflatten(3, (3, 2)).unflatten(2, (2, 2))  # (N, 8, 2, 2, 3, 2)
            windows = cells.permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, 8)
            return self.attention(windows, windows, windows, average_attn_weights=False)[1]

    torch.manual_seed(0)
    model, pixels = Windows().eval(), random(2, 8, 4, 6)
    (call,) = attention_of(model, pixels)
    with without_fast_path():
        expected = model(pixels)
    cells = np.arange(24).reshape(4, 6)
    blocks = [cells[r : r + 2, c : c + 2].ravel().tolist() for r in (0, 2) for c in (0, 2, 4)]
    assert call.places.queries.tolist() == blocks
    assert (torch.cat(call.ordered) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("side", [2, 4], ids=["windows", "the whole image"])
def test_learned_queries_may_be_the_same_for_all_images_and_windows(side):
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries = nn.Parameter(random(1, 2, 5, 3))

        def forward(self, pixels):
            cells = pixels.unflatten(3, (-1, side)).unflatten(2, (-1, side))
            keys = cells.permute(0, 2, 4, 3, 5, 1).reshape(-1, 2, side * side, 3)
            return functional.scaled_dot_product_attention(self.queries, keys, keys)

    pixels = random(2, 6, 4, 4)[:, [0, 1, 2, 0, 1, 2]]
    model = Pooled()
    (call,) = attention_of(model, pixels)
    *_, values = call.arguments
    assert call.places.keys.shape == (call.places.windows, side * side)
    assert (torch.cat(call.raw) @ values - model(pixels)).abs().max() < 1e-5
    assert call.places.key_grid


# Figures


def test_attention_that_is_the_same_everywhere():
    """A class token and 2 by 2 patches: of the 16 pairs 4 are 0 apart, 8 are 1, 4 are root 2."""
    figures = measure_heads(torch.full((1, 2, 5, 5), 0.2), grid_places(1, 2, 2))
    assert figures.entropy == pytest.approx((math.log(5),) * 2)
    assert figures.prefix_share == pytest.approx((0.2,) * 2)
    assert figures.distance == pytest.approx(((2 + math.sqrt(2)) / 4,) * 2)
    assert (figures.row_error, figures.broken) == (pytest.approx(0, abs=1e-6), 0)


def test_attention_of_each_token_on_itself():
    figures = measure_heads(torch.eye(5)[None, None], grid_places(1, 2, 2))
    assert (figures.entropy, figures.prefix_share, figures.distance) == ((0.0,), (0.2,), (0.0,))
    shares = torch.eye(4)[None, None].clone()
    shares[0, 0, 2, 2] = 0.75
    assert measure_heads(shares, grid_places(0, 2, 2)).row_error == 0.25


def test_a_query_that_is_not_finite_is_left_out_and_counted():
    shares = torch.eye(4).repeat(1, 2, 1, 1)
    shares[0, 1, 3, 0] = torch.nan
    figures = measure_heads(shares, grid_places(0, 2, 2))
    assert figures.broken == 1
    assert figures.distance == (0.0, 0.0)
    assert measure_heads(torch.full((1, 1, 4, 4), torch.nan), grid_places(0, 2, 2)).entropy == (
        None,
    )


def test_queries_that_pad_a_window_do_not_count():
    places = TokenPlaces(
        (1, 1), (), torch.tensor([[0, 1, PADDING]]), torch.tensor([[0, 1, PADDING]]), (1, 2), (1, 2)
    )
    shares = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.4, 0.3, 0.3]])[None, None]
    figures = measure_heads(shares, places)
    assert (figures.entropy, figures.distance) == ((0.0,), (0.5,))


@pytest.mark.parametrize(
    "change",
    [
        lambda tokens: tokens[:, torch.tensor([0, 3, 9])],  # not evenly spaced
        lambda tokens: torch.from_numpy(tokens.numpy())[:, :3],  # not followed
    ],
)
def test_padding_is_known_and_left_out_even_if_no_token_has_a_known_place(change):
    places = places_after(lambda tokens: functional.pad(change(tokens), (0, 0, 0, 1)))
    assert (places.unknown != "", places.queries.tolist()) == (True, [[NO_PLACE] * 3 + [PADDING]])
    even = torch.full((1, 1, 4, 4), 0.25)  # the entropy is log 4, but that of the padding is 0
    even[..., 3, :] = torch.tensor([1.0, 0, 0, 0])
    assert measure_heads(even, places).entropy == pytest.approx((math.log(4),))


def test_a_token_that_pads_only_the_first_image_is_not_taken_for_padding():
    first, other = (
        replace(grid_places(0, 1, 3), queries=torch.tensor([tokens]))
        for tokens in ([0, PADDING, PADDING], [PADDING, PADDING, 2])
    )
    assert first.unlike(other, "so").queries.tolist() == [[NO_PLACE, PADDING, NO_PLACE]]


def test_a_pooled_key_is_in_the_middle_of_its_patches():
    """4 by 4 queries and 1 by 1 key: from the corner it is 1.5 steps down and across."""
    places = TokenPlaces((1, 1), (), torch.tensor([[0]]), torch.tensor([[0]]), (4, 4), (1, 1))
    figures = measure_heads(torch.ones(1, 1, 1, 1), places)
    assert figures.distance == pytest.approx((math.hypot(1.5, 1.5),))


def test_the_map_of_the_class_token_leaves_out_what_it_gives_itself():
    shares = torch.tensor([[0.5, 0.1, 0.2, 0.2, 0.0]] + [[0.2] * 5] * 4)[None, None]
    found = query_map(shares, grid_places(1, 2, 2), CLASS_TOKEN)
    assert found.tolist() == [[[pytest.approx(0.1), pytest.approx(0.2)], [pytest.approx(0.2), 0]]]
    assert query_map(shares[..., 1:, 1:], grid_places(0, 2, 2), CLASS_TOKEN) is None


@pytest.mark.parametrize(
    ("across", "down", "cell"), [(0, 0, 0), (0.99, 0, 3), (0.5, 0.4, 6), (1, 1, 11)]
)
def test_a_point_of_the_image_is_in_one_cell(across, down, cell):
    assert cell_of(grid_places(0, 3, 4), across, down) == cell


# Making and comparing


ATTENTION = Call(LayerInfo("attn", "Attention"), order=1, side="attention")


def places_after(change) -> TokenPlaces:
    """The places of the tokens of 4 by 3 pixels, after a function of tokens (1, 12, 3)."""

    class Changed(nn.Module):
        def forward(self, pixels):
            tokens = change(pixels.flatten(2).transpose(1, 2).contiguous())
            return functional.scaled_dot_product_attention(tokens, tokens, tokens)

    (call,) = attention_of(Changed(), random(1, 3, 4, 3))
    return call.places


def measure_heads(probabilities, places):
    return measure_attention(ATTENTION, "softmax", probabilities, places)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def grid_places(prefix: int, rows: int, columns: int) -> TokenPlaces:
    tokens = torch.tensor([[NO_PLACE] * prefix + list(range(rows * columns))])
    return TokenPlaces((1, 1), (), tokens, tokens, (rows, columns), (rows, columns))


class ChannelsLast(nn.Module):
    def forward(self, pixels):
        return pixels.permute(0, 2, 3, 1)


def swin_by_hand(attention, values: np.ndarray, shift: int) -> np.ndarray:
    """The map of each cell and head, (cells, heads, rows, columns), one pair of pixels at a time.

    A cell sees those cells of its window that lay beside it before the shift. Cells beside the
    image are seen too: they are zero, and have the bias as their query and key.
    """
    rows, columns, channels = values.shape
    heads, side = attention.num_heads, 4
    weight = attention.qkv.weight.detach().numpy()
    bias = attention.qkv.bias.detach().numpy()
    table = attention.relative_position_bias_table.detach().numpy()
    high, wide = (-(-length // side) * side for length in (rows, columns))
    down, across = (shift if length > side else 0 for length in (high, wide))

    def project(row: int, column: int, part: int) -> np.ndarray:
        inside = row < rows and column < columns
        value = values[row, column] if inside else np.zeros(channels)
        chosen = slice(part * channels, (part + 1) * channels)
        return (weight[chosen] @ value + bias[chosen]).reshape(heads, -1)

    def after_shift(row: int, column: int) -> tuple[int, int]:
        return (row - down) % high, (column - across) % wide

    def region(at: int, length: int, moved: int) -> int:
        """Return 0, 1 or 2; torchvision masks cells of different regions from each other."""
        return 0 if at < length - side else 1 if at < length - moved or not moved else 2

    maps = np.zeros((rows * columns, heads, rows, columns))
    for row, column in np.ndindex(rows, columns):
        top, left = after_shift(row, column)
        scores, at = [], []
        for other in np.ndindex(high, wide):
            low, right = after_shift(*other)
            if (low // side, right // side) != (top // side, left // side):
                continue
            query, key = project(row, column, 0), project(other[0], other[1], 1)
            index = (top - low + side - 1) * (2 * side - 1) + left - right + side - 1
            score = (query * key).sum(1) / math.sqrt(channels // heads) + table[index]
            together = region(top, high, down) == region(low, high, down) and region(
                left, wide, across
            ) == region(right, wide, across)
            scores.append(score if together or not (down or across) else score - 100)
            at.append(other)
        shares = np.exp(np.array(scores) - np.max(scores, 0))
        shares /= shares.sum(0)
        for share, (low, right) in zip(shares, at, strict=True):
            if low < rows and right < columns:
                maps[row * columns + column, :, low, right] = share
    return maps


def build_timm(name: str, options: dict[str, Any]) -> nn.Module:
    """A model of timm with random weights, large enough for attention that is not flat."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter += torch.randn_like(parameter) * 0.05
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = True
    return model


def difference_from_unfused(name: str, options: dict[str, Any]) -> float:
    """Return the largest difference from the input of ``attn_drop`` in unfused attention."""
    model: Any = build_timm(name, options)
    size = options.get("img_size") or model.default_cfg["input_size"][-1]
    pixels = random(2, 3, size, size)
    calls = attention_of(model, pixels)
    expected = []
    for module in model.modules():
        if getattr(module, "fused_attn", False):
            module.fused_attn = False
        if isinstance(getattr(module, "attn_drop", None), nn.Module):
            module.attn_drop.register_forward_hook(
                lambda _module, inputs, _output: expected.append(inputs[0].clone())
            )
    with torch.inference_mode():
        model(pixels)
    assert not any(call.places.unknown for call in calls)
    return max(
        float((torch.cat(call.raw).reshape(weights.shape) - weights).abs().max())
        for call, weights in zip(calls, expected, strict=True)
    )
