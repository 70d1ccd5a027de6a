"""What the attention calls of a forward do with its image."""

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
        mark: left, top, width and height of the patch of the query, as shares of what the network
            saw; None for a class token.
    """

    values: Tensor
    mark: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True)
class QueryMaps:
    """What all queries of a call attend to.

    Attributes:
        levels: the maps as one picture, (rows * heads * h, columns * w) in 256 levels: a block for
            each query where it stands on the image, and in a block the maps of its heads one below
            the other. A class token adds a row of blocks, of which it has the first.
        is_thinned: these are fewer than those that the model computed.
        has_class_token: the last row of blocks begins with that of the class token.
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
        query: the map of the query that is drawn; None if there is no such query, or no pictures.
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
    """What the attention calls of a forward do with its image.

    Attributes:
        calls: the calls whose attention is visible, in running order.
        hidden: the rows of the calls whose attention is not visible.
        rollout: the attention of a query rolled out over all calls; None if that was not asked for.
    """

    image: str
    calls: tuple[CallAttention, ...]
    hidden: tuple[AttentionRow, ...] = ()
    rollout: QueryMap | None = None

    @property
    def rows(self) -> tuple[AttentionRow, ...]:
        """The rows of all calls."""
        return (*(each.row for each in self.calls), *self.hidden)
