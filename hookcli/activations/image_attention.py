"""What the attention calls of a forward pass do with its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.records.attention import AttentionRow
    from hookcli.records.calls import Call


@dataclass(frozen=True, slots=True)
class QueryMap:
    """What one query attends to.

    Attributes:
        values: the map of each head, (heads, h, w).
        mark: left, top, width and height of the query's patch, as shares of the network's input;
            None for a class token.
    """

    values: Tensor
    mark: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True)
class QueryMaps:
    """What all queries of a call attend to.

    Attributes:
        levels: the maps as one picture, (rows * heads * h, columns * w) in 256 levels. Each query
            has a block at the query's position on the image. A block consists of the maps of all
            heads, one below the other. A class token's block is alone in a last row.
        is_thinned: whether the maps were averaged down, or maps of some queries left out.
        has_class_token: whether the picture has the block of a class token.
    """

    levels: Tensor
    query_grid: tuple[int, ...]
    map_grid: tuple[int, ...]
    is_thinned: bool
    has_class_token: bool


@dataclass(frozen=True, slots=True)
class CallAttention:
    """What one attention call does with an image.

    Attributes:
        query: the map of the drawn query; None if there is no such query, or no pictures.
        maps: the maps of all queries for the page; None if there are none.
        kept: the probabilities (1, windows, heads, queries, keys); None unless they are saved.
    """

    call: Call
    row: AttentionRow
    query: QueryMap | None = None
    maps: QueryMaps | None = None
    kept: Tensor | None = None


@dataclass(frozen=True, slots=True)
class ImageAttention:
    """What the attention calls of a forward pass do with its image.

    Attributes:
        calls: the calls whose probabilities hookcli could recompute, in running order.
        hidden: the rows of the other attention calls.
        rollout: a query's attention, rolled out over all calls; None if it was not requested.
    """

    image: str
    calls: tuple[CallAttention, ...]
    hidden: tuple[AttentionRow, ...] = ()
    rollout: QueryMap | None = None

    @property
    def rows(self) -> tuple[AttentionRow, ...]:
        """The rows of all calls."""
        return (*(each.row for each in self.calls), *self.hidden)
