"""Attention maps reduced to fit on a page, and attention rollout over depth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.activations.token_places import TokenPlaces

THINNED_SIDE = 14
_LEVELS = 255


def refuse_rollout(calls: Sequence[TokenPlaces]) -> str:
    """Return why attention cannot be rolled out over these calls; empty if it can."""
    if not calls:
        return "no attention is visible"
    first = calls[0]
    for places in calls:
        if places.windows > 1:
            return "attention inside windows does not follow a token through the whole image"
        if places.queries.shape != places.keys.shape:
            queries, keys = places.queries.shape[1], places.keys.shape[1]
            return f"a call has {queries} queries and {keys} keys: they are not the same tokens"
        if places.queries.shape != first.queries.shape:
            before, after = first.queries.shape[1], places.queries.shape[1]
            return f"the number of tokens changes from {before} to {after}"
        if not (places.queries == places.keys).all() or not (places.queries == first.queries).all():
            return "the tokens are not at the same places in all calls"
    return ""


def roll_out(before: Tensor | None, probabilities: Tensor) -> Tensor:
    """Return the rollout ``before``, continued with one call's attention: (tokens, tokens)."""
    # The mean over the heads, and with the identity for the residual connection, as Abnar and
    # Zuidema do (https://arxiv.org/abs/2005.00928)
    mean = probabilities[0].mean(0)
    mean.diagonal().add_(1)
    mean /= mean.sum(-1, keepdim=True)
    return mean if before is None else mean @ before


def choose_side(maps: Sequence[tuple[int, Sequence[int], Sequence[int]]], limit: int) -> int | None:
    """Return the side of the grid to which maps are reduced, at most 14; None if they fit as is.

    ``maps`` has the number of heads, the query grid and the key grid of each call of each image;
    ``limit`` is in bytes, one per head, query and key.
    """
    if sum(heads * math.prod((*many, *few)) for heads, many, few in maps) <= limit:
        return None

    def size(side: int) -> int:
        thinned = ((heads, [min(side, n) for n in (*many, *few)]) for heads, many, few in maps)
        return sum(heads * math.prod(lengths) for heads, lengths in thinned)

    return next((side for side in range(THINNED_SIDE, 1, -1) if size(side) <= limit), 1)


def thin_map(values: Tensor, side: int | None) -> Tensor:
    """Return maps (heads, rows, columns) as levels in uint8, 255 for each head's largest value."""
    values = values.nan_to_num(0)
    if side is not None:
        rows, columns = (min(side, length) for length in values.shape[-2:])
        values = adaptive_avg_pool2d(values[None], (rows, columns))[0]
    largest = values.flatten(1).amax(1)
    scale = largest.masked_fill(largest == 0, 1)[:, None, None]
    return (values / scale * _LEVELS).round().to(torch.uint8)


def thin_queries(grid: Sequence[int], side: int | None) -> list[int]:
    """Return the cells of a grid (rows, columns) whose maps are kept, at most ``side`` a side."""
    sizes = [(length, min(length, side or length)) for length in grid]
    rows, columns = (
        [(2 * place + 1) * length // (2 * kept) for place in range(kept)] for length, kept in sizes
    )
    return [row * grid[1] + column for row in rows for column in columns]
