"""What one attention call does with one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.records.attention import AttentionRow
    from hookcli.records.calls import Call


@dataclass(frozen=True, slots=True)
class ImageAttention:
    """What one attention call does with one image.

    Attributes:
        image: the image's key.
        call: the call; None for the rollout over all calls, and for an attention that is hidden.
        row: its figures; None for the rollout.
        query: the map of the query that is drawn, (heads, h, w); None if there is no such query.
        mark: left, top, width and height of that query's patch, as shares of what the network saw;
            None for a class token.
        levels: the maps of all queries as one picture, (rows * heads * h, columns * w) in 256
            levels: a block for each query where it stands on the image, and in a block the maps of
            its heads one below the other; None if no pictures are drawn or the places of the tokens
            are not known.
        query_grid: the rows and columns of the queries in ``levels``.
        map_grid: the rows and columns of a map in ``levels``.
        is_thinned: these are fewer than those that the model computed.
        kept: the probabilities (1, windows, heads, queries, keys); None unless they are saved.
    """

    image: str
    call: Call | None = None
    row: AttentionRow | None = None
    query: Tensor | None = None
    mark: tuple[float, float, float, float] | None = None
    levels: Tensor | None = None
    query_grid: tuple[int, ...] = ()
    map_grid: tuple[int, ...] = ()
    is_thinned: bool = False
    kept: Tensor | None = None
