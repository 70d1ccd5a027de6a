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
    """What one query attends to."""

    values: Tensor  # (heads, h, w)
    # left, top, width and height as shares of the input
    mark: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True)
class QueryMaps:
    """What all queries of a call attend to.

    ``levels`` is a picture (rows * heads * h, columns * w) in 256 levels. Each query has a block at
    its position on the image: the maps of all heads, one below the other. A class token's block is
    alone in a last row.
    """

    levels: Tensor
    query_grid: tuple[int, ...]
    map_grid: tuple[int, ...]
    is_thinned: bool
    has_class_token: bool


@dataclass(frozen=True, slots=True)
class CallAttention:
    """What one attention call does with an image."""

    call: Call
    row: AttentionRow
    query: QueryMap | None = None  # the drawn one
    maps: QueryMaps | None = None  # for the page
    kept: Tensor | None = None  # the probabilities to save, (1, windows, heads, queries, keys)


@dataclass(frozen=True, slots=True)
class ImageAttention:
    """What the attention calls of a forward pass do with its image."""

    image: str
    calls: tuple[CallAttention, ...]  # in running order
    hidden: tuple[AttentionRow, ...] = ()  # calls without recomputed probabilities
    rollout: QueryMap | None = None  # of a query's attention

    @property
    def rows(self) -> tuple[AttentionRow, ...]:
        """The rows of all calls."""
        return (*(each.row for each in self.calls), *self.hidden)
