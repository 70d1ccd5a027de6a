"""Compute statistics of attention heads, maps of what a query attends to, and attention rollout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from hookcli.activations.token_places import NO_PLACE, PADDING
from hookcli.records.attention_records import AttentionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.activations.token_places import TokenPlaces
    from hookcli.records.calls import Call


@dataclass(frozen=True, slots=True)
class QueryMap:
    values: Tensor  # (heads, h, w)
    mark: tuple[float, float, float, float] | None  # left, top, width, height: shares of the input


@dataclass(frozen=True, slots=True)
class QueryMaps:
    # A picture (rows * heads * h, columns * w) in 256 levels. At its position on the image, each
    # query has the maps of all heads, one below the other; a class token is alone in a last row.
    levels: Tensor
    query_grid: tuple[int, ...]
    map_grid: tuple[int, ...]
    is_thinned: bool
    has_class_token: bool


@dataclass(frozen=True, slots=True)
class CallAttention:
    call: Call
    row: AttentionRow
    query: QueryMap | None = None  # the drawn one
    maps: QueryMaps | None = None  # for the page
    kept: Tensor | None = None  # the probabilities to save, (1, windows, heads, queries, keys)


@dataclass(frozen=True, slots=True)
class ImageAttention:
    image: str
    calls: tuple[CallAttention, ...]  # in running order
    hidden: tuple[AttentionRow, ...] = ()  # calls without recomputed probabilities
    rollout: QueryMap | None = None  # of a query's attention

    @property
    def rows(self) -> tuple[AttentionRow, ...]:
        return (*(each.row for each in self.calls), *self.hidden)


CLASS_TOKEN = NO_PLACE
THINNED_SIDE = 14
_LEVELS = 255


def measure_attention(
    call: Call, function: str, probabilities: Tensor, places: TokenPlaces
) -> AttentionRow:
    """Return a row of ``attention.csv``, which describes one attention call on one image.

    ``function`` names the torch function that computed ``probabilities`` (windows, heads, queries,
    keys). ``places`` has the cell of the image that each query and key covers.
    """
    device = probabilities.device
    queries, keys = places.queries.to(device), places.keys.to(device)
    real = (queries != PADDING)[:, None].expand(probabilities.shape[:-1])
    sums = probabilities.sum(-1)
    counted = real & sums.isfinite()
    broken = real.sum() - counted.sum()
    values = probabilities.masked_fill(~counted[..., None], 0) if broken else probabilities
    least = torch.finfo(values.dtype).tiny  # so that 0 log 0 is 0; entr takes longer
    entropy = -values.clamp_min(least).log_().mul_(values).sum(-1)
    on_prefix = (values @ (keys == NO_PLACE).float()[:, None, :, None])[..., 0]
    on_image = ((queries >= 0)[..., None] & (keys >= 0)[:, None]).float()
    pairs = torch.stack([on_image, _distances(places).to(device) * on_image], -1)
    near, far = (values.flatten(2) @ pairs.flatten(1, 2)).sum(0).unbind(-1)
    totals = (each.masked_fill(~counted, 0).sum((0, 2)) for each in (entropy, on_prefix, sums))
    by_head = [*totals, counted.sum((0, 2)), near, far]
    entropies, prefixes, masses, counts, nears, fars = torch.stack(by_head).tolist()
    known = not places.unknown
    return AttentionRow(
        order=call.order,
        call_id=call.id,
        module_path=call.layer.module_path,
        module_type=call.layer.module_type,
        function=function,
        images=1,
        windows=places.windows,
        heads=places.heads,
        queries=places.queries.shape[1],
        keys=places.keys.shape[1],
        query_grid=places.query_grid,
        key_grid=places.key_grid,
        prefix=int((places.keys[0] == NO_PLACE).sum()) if known else 0,
        entropy=_ratios(entropies, counts),
        prefix_share=_ratios(prefixes, masses) if known else (),
        distance=_ratios(fars, nears) if known else (),
        row_error=float((sums - 1).masked_fill(~counted, 0).abs().amax()),
        broken=int(broken),
        reason=places.unknown,
    )


def query_map(probabilities: Tensor, places: TokenPlaces, cell: int) -> Tensor | None:
    """Average the attention maps of the queries in one cell of the image; return a map per head.

    ``cell`` is the cell's index in ``places``, or ``CLASS_TOKEN`` for the first query that covers
    no part of the image. ``probabilities`` are (windows, heads, queries, keys). The result is
    (heads[, frames], rows, columns), or None if the keys have no grid or no query is in the cell.
    """
    found = (places.queries == cell).nonzero()
    if not places.key_grid or not len(found):
        return None
    if cell == CLASS_TOKEN:
        found = found[:1]
    heads = probabilities.shape[1]
    maps = torch.zeros(heads, math.prod(places.key_grid), device=probabilities.device)
    for window, query in found.tolist():
        keys = places.keys[window].to(maps.device)
        maps.index_add_(1, keys[keys >= 0], probabilities[window, :, query, keys >= 0])
    return (maps / len(found)).reshape(heads, *places.key_grid)


def cell_of(places: TokenPlaces, across: float, down: float) -> int:
    """Return the index of the cell of queries at the point (``across``, ``down``), each 0 to 1."""
    rows, columns = places.query_grid[-2:]
    row, column = min(int(down * rows), rows - 1), min(int(across * columns), columns - 1)
    return row * columns + column


def _ratios(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float | None, ...]:
    pairs = zip(parts, wholes, strict=True)
    return tuple(part / whole if whole > 0 else None for part, whole in pairs)


def _distances(places: TokenPlaces) -> Tensor:
    """Return the distance of each key from each query, in query cells: (windows, queries, keys)."""
    squares = torch.zeros(*places.queries.shape, places.keys.shape[1])
    queries, keys = places.queries.clamp(min=0), places.keys.clamp(min=0)
    for many, few in zip(reversed(places.query_grid), reversed(places.key_grid), strict=False):
        at = (queries % many).float()
        to = (keys % few + 0.5) * (many / few) - 0.5  # a key may cover several patches
        squares = squares + (at[..., None] - to[:, None]) ** 2
        queries, keys = queries // many, keys // few
    return squares.sqrt()


def refuse_rollout(calls: Sequence[TokenPlaces]) -> str:
    if not calls:
        return "no attention is visible"
    first = calls[0]
    for places in calls:
        if places.windows > 1:
            return "attention inside windows does not follow a token through the whole image"
        before, queries, keys = (t.shape[1] for t in (first.queries, places.queries, places.keys))
        if queries != keys:
            return f"a call has {queries} queries and {keys} keys: they are not the same tokens"
        if queries != before:
            return f"the number of tokens changes from {before} to {queries}"
        if not (places.queries == places.keys).all() or not (places.queries == first.queries).all():
            return "the tokens are not at the same places in all calls"
    return ""


def roll_out(before: Tensor | None, probabilities: Tensor) -> Tensor:
    """Extend the attention rollout ``before`` by the probabilities of the next call.

    Row i of a rollout (tokens, tokens) has the share that token i takes from each token of the
    first call. ``probabilities`` are (1, heads, tokens, tokens). If ``before`` is None, the result
    is the rollout of this call alone.
    """
    # Averages the heads, and adds the identity for the residual connection, as Abnar and Zuidema do
    # (https://arxiv.org/abs/2005.00928)
    mean = probabilities[0].mean(0)
    mean.diagonal().add_(1)
    mean /= mean.sum(-1, keepdim=True)
    return mean if before is None else mean @ before


def choose_side(maps: Sequence[tuple[int, Sequence[int], Sequence[int]]], limit: int) -> int | None:
    """Return how many rows and columns each grid may keep so that all maps fit in ``limit`` bytes.

    ``maps`` has the number of heads, the query grid and the key grid of each attention call. A
    call's maps take one byte per head, query and key. The result is None if the maps fit as they
    are, and otherwise from 1 to 14; with 1, the maps may still be too large.
    """
    if sum(heads * math.prod((*many, *few)) for heads, many, few in maps) <= limit:
        return None

    def size(side: int) -> int:
        thinned = ((heads, [min(side, n) for n in (*many, *few)]) for heads, many, few in maps)
        return sum(heads * math.prod(lengths) for heads, lengths in thinned)

    return next((side for side in range(THINNED_SIDE, 1, -1) if size(side) <= limit), 1)


def thin_map(values: Tensor, side: int | None) -> Tensor:
    """Convert maps (heads, rows, columns) to uint8, with 255 for each head's largest value.

    Unless ``side`` is None, the maps are first averaged to at most ``side`` rows and columns.
    """
    values = values.nan_to_num(0)
    if side is not None:
        rows, columns = (min(side, length) for length in values.shape[-2:])
        values = adaptive_avg_pool2d(values[None], (rows, columns))[0]
    largest = values.flatten(1).amax(1)
    scale = largest.masked_fill(largest == 0, 1)[:, None, None]
    return (values / scale * _LEVELS).round().to(torch.uint8)


def thin_queries(grid: Sequence[int], side: int | None) -> list[int]:
    """Return the indices of evenly spaced cells of a grid (rows, columns), row by row.

    At most ``side`` rows and ``side`` columns are kept. If ``side`` is None, all are kept.
    """
    sizes = [(length, min(length, side or length)) for length in grid]
    rows, columns = (
        [(2 * index + 1) * length // (2 * kept) for index in range(kept)] for length, kept in sizes
    )
    return [row * grid[1] + column for row in rows for column in columns]
