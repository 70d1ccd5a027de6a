"""The figures of each head of an attention, and its map of the image for one query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli.activations.token_places import NO_PLACE, PADDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.activations.token_places import TokenPlaces

CLASS_TOKEN = NO_PLACE


@dataclass(frozen=True, slots=True)
class HeadFigures:
    """The figures of the heads of one attention call for one image.

    Queries that pad a window are left out, and so are those whose probabilities are not finite.

    Attributes:
        entropy: the mean over the queries of the entropy of their probabilities, in nats, for each
            head: 0 if each query sees one key alone, log(keys) if it sees all alike; None if there
            are no queries.
        prefix_share: the share of their attention that the queries give to keys that stand for no
            part of the image, such as a class token; None where the places are not known.
        distance: the mean distance from a query to the keys that it sees, both on the image and
            weighted with the attention, in steps of the grid of the queries; None where there are
            no such pairs, or the places are not known.
        row_error: the largest difference from 1 among the sums of the probabilities of a query.
        broken: the number of queries, over all heads, with a probability that is not finite.
    """

    entropy: tuple[float | None, ...]
    prefix_share: tuple[float | None, ...]
    distance: tuple[float | None, ...]
    row_error: float
    broken: int


def measure_heads(probabilities: Tensor, places: TokenPlaces) -> HeadFigures:
    """Return the figures of (windows, heads, queries, keys) probabilities of one image.

    Takes memory for one more copy of the probabilities, or two if some are not finite.
    """
    device = probabilities.device
    queries, keys = places.queries.to(device), places.keys.to(device)
    real = (queries != PADDING)[:, None].expand(probabilities.shape[:-1])
    sums = probabilities.sum(-1)
    counted = real & sums.isfinite()
    broken = real.sum() - counted.sum()
    values = probabilities.masked_fill(~counted[..., None], 0) if broken else probabilities
    entropy = torch.special.entr(values).sum(-1).masked_fill(~counted, 0)
    on_prefix = (values @ (keys == NO_PLACE).float()[:, None, :, None])[..., 0]
    on_image = ((queries >= 0)[..., None] & (keys >= 0)[:, None]).float()
    pairs = torch.stack([on_image, _distances(places).to(device) * on_image], -1)
    seen, far = (values.flatten(2) @ pairs.flatten(1, 2)).sum(0).unbind(-1)
    wholes = [counted, sums.masked_fill(~counted, 0)]
    parts = [entropy, on_prefix.masked_fill(~counted, 0)]
    *totals, worst, lost = torch.cat(
        [
            *(part.sum((0, 2)) for part in (*parts, *wholes)),
            far,
            seen,
            (sums - 1).masked_fill(~counted, 0).abs().amax().reshape(1),
            broken.reshape(1),
        ]
    ).tolist()
    heads = len(seen)
    chunks = [totals[start : start + heads] for start in range(0, len(totals), heads)]
    entropies, prefixes, counts, masses, distances, near = chunks
    return HeadFigures(
        _ratios(entropies, counts),
        (None,) * heads if places.unknown else _ratios(prefixes, masses),
        _ratios(distances, near),
        worst,
        int(lost),
    )


def query_map(probabilities: Tensor, places: TokenPlaces, cell: int) -> Tensor | None:
    """Return what one query sees of the image, for every head: (heads, rows, columns).

    What a head gives to keys that are not on the image is missing from the map. Where several
    queries stand at a cell, it is their mean.

    Args:
        probabilities: those of one image, (windows, heads, queries, keys); a rollout has one window
            and one head.
        places: the places of queries and keys.
        cell: the cell of ``places.query_grid``, counted row by row, or ``CLASS_TOKEN`` for the
            first query that stands for no part of the image.

    Returns:
        The map, or None if there is no such query, or keys have no places. For a clip it is
        (heads, frames, rows, columns).
    """
    if not places.key_grid:
        return None
    found = (places.queries == cell).nonzero()
    if not len(found):
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
    """Return the cell of the grid of the queries that holds a point of the image.

    Args:
        places: the places of the queries; for a clip the cell is one of its first frame.
        across: the point from the left of what the network sees, as a share of its width.
        down: the point from the top, as a share of its height.
    """
    rows, columns = places.query_grid[-2:]
    row, column = min(int(down * rows), rows - 1), min(int(across * columns), columns - 1)
    return row * columns + column


def _ratios(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(
        part / whole if whole > 0 else None for part, whole in zip(parts, wholes, strict=True)
    )


def _distances(places: TokenPlaces) -> Tensor:
    """Return the distance of each query to each key (windows, queries, keys), on the image."""
    squares = torch.zeros(*places.queries.shape, places.keys.shape[1])
    queries, keys = places.queries.clamp(min=0), places.keys.clamp(min=0)
    for many, few in zip(reversed(places.query_grid), reversed(places.key_grid), strict=False):
        at = (queries % many).float()
        to = (keys % few + 0.5) * (many / few) - 0.5  # a key may stand for several patches
        squares = squares + (at[..., None] - to[:, None]) ** 2
        queries, keys = queries // many, keys // few
    return squares.sqrt()
