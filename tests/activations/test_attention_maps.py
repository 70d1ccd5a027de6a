"""Rollout over depth and maps made small, with numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hookcli.activations.attention_maps import (
    CLASS_TOKEN,
    choose_side,
    query_map,
    refuse_rollout,
    roll_out,
    thin_map,
    thin_queries,
)
from hookcli.activations.token_places import TokenPlaces
from tests.attention_calls import attention_of
from tests.small_models import build_small


def test_the_rollout_of_two_calls_is_worked_out_by_hand():
    """Half of each call is the identity: [[.5, .5], [0, 1]] follows [[1, 0], [.5, .5]]."""
    first = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]]])
    second = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]])
    once = roll_out(None, first)
    assert once.tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert roll_out(once, second).tolist() == [[0.75, 0.25], [0.5, 0.5]]


def test_the_rollout_of_a_vit_is_that_of_numpy_and_each_row_sums_to_one():
    calls = attention_of(build_small("vit"), torch.rand(1, 3, 64, 64))
    rolled, expected = None, np.eye(17)
    for call in calls:
        rolled = roll_out(rolled, call.ordered[0])
        mixed = 0.5 * call.ordered[0][0].numpy().mean(0) + 0.5 * np.eye(17)
        expected = mixed / mixed.sum(1, keepdims=True) @ expected
    assert np.abs(rolled.numpy() - expected).max() < 1e-6
    found = query_map(rolled[None, None], calls[-1].places, CLASS_TOKEN)
    assert np.abs(found.numpy() - expected[0, 1:].reshape(1, 4, 4)).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vit", ""),
        ("swin", "attention inside windows does not follow a token through the whole image"),
        ("convnext", "no attention is visible"),
    ],
)
def test_attention_that_cannot_be_rolled_out_is_refused_with_the_reason(name, reason):
    calls = attention_of(build_small(name), torch.rand(1, 3, 64, 64))
    assert refuse_rollout([call.places for call in calls]) == reason


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (((4, 4), (4, 1)), "a call has 4 queries and 1 keys: they are not the same tokens"),
        (((4, 4), (2, 2)), "the number of tokens changes from 4 to 2"),
    ],
)
def test_tokens_that_become_fewer_cannot_be_rolled_out(tokens, reason):
    places = [
        TokenPlaces((1, 1), (), torch.arange(q)[None], torch.arange(k)[None], (1, q), (1, k))
        for q, k in tokens
    ]
    assert refuse_rollout(places) == reason


# Thinning


def test_maps_that_fit_are_kept_as_they_are():
    assert choose_side([(12, (14, 14), (14, 14))], 12 * 196 * 196) is None


def test_maps_that_do_not_fit_are_thinned_to_14_or_to_what_fits():
    large = [(16, (37, 37), (37, 37))] * 2
    assert choose_side(large, 16 * 196 * 196 * 2) == 14
    assert choose_side([(12, (14, 14), (14, 14))] * 12, 4 * 2**20) == 13
    assert choose_side(large, 1) == 1


def test_a_map_is_averaged_and_its_largest_value_becomes_255():
    values = torch.zeros(2, 4, 4)
    values[0, :2, :2] = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    values[0, 3, 3] = 2.0
    assert thin_map(values, 2).tolist() == [[[255, 0], [0, 64]], [[0, 0], [0, 0]]]


def test_the_queries_that_are_kept_are_in_the_middle_of_equal_parts():
    assert thin_queries((2, 3), 14) == [0, 1, 2, 3, 4, 5]
    assert thin_queries((4, 6), 2) == [1 * 6 + 1, 1 * 6 + 4, 3 * 6 + 1, 3 * 6 + 4]
