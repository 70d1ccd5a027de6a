"""The figures of attention: what each head of a call looks at, in strings and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hookcli.outside.documents import Axes, Distance, FileName, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

Distances: TypeAlias = tuple[Distance | None, ...]


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """A row of ``attention.csv``: one attention call, over one image or many.

    A call whose attention is not visible has a row too: ``reason`` says why, and it has no figures.
    The figures of the heads are tuples with one value per head, averaged over the images. A value
    is null if no query of the head counts or, for ``distance``, if no attention goes to the image.
    A tuple is empty if its figure is not known for any head. Queries that pad a window, and queries
    that are not finite, do not count.

    Attributes:
        order: the position among the attention calls of a forward, from 1.
        call_id: the module that computes it, and the number of its attention call:
            ``attention:blocks.3.attn``.
        module_path: the path of that module.
        module_type: its class name.
        function: the observed torch function: ``scaled_dot_product_attention``,
            ``multi_head_attention_forward`` or ``softmax``; empty if there was none.
        images: the number of images.
        windows: the number of windows; 1 where each query sees the whole image.
        heads: the number of heads.
        queries: the number of queries in each window.
        keys: the number of keys in each window.
        query_grid: the rows and columns of the grid of the queries on the image, for a clip after
            the number of frames; empty if the queries have no places.
        key_grid: the rows and columns of the grid of the keys, which are fewer if a model pools
            them.
        prefix: the number of keys that cover no part of the image, such as a class token.
        entropy: the entropy of a query's attention in nats, averaged over the queries: 0 if each
            query attends to a single key, log(keys) if each attends equally to all keys.
        prefix_share: the share of the attention that goes to the ``prefix`` keys.
        distance: the mean distance from a query to the keys on the image, weighted by the
            attention, in steps of the grid of the queries.
        row_error: the largest difference between 1 and the sum of a query's attention.
        broken: the number of queries, over all heads, with attention that is not finite.
        reason: why the attention or the places of its tokens are unknown; empty if they are known.
    """

    order: Whole
    call_id: str
    module_path: str = ""
    module_type: str = ""
    function: str = ""
    images: Whole = 0
    windows: Whole = 0
    heads: Whole = 0
    queries: Whole = 0
    keys: Whole = 0
    query_grid: Axes = ()
    key_grid: Axes = ()
    prefix: Whole = 0
    entropy: Distances = ()
    prefix_share: tuple[float | None, ...] = ()
    distance: Distances = ()
    row_error: Distance | None = None
    broken: Whole = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """The maps of one attention call for one image, in one picture for the page.

    The picture has a block for each query, at the query's position on the image. If there is a
    class token, its block is below the others, at the left. In a block, the heads' maps are one
    below the other. The palette index of a pixel is its share of the largest value of its map, from
    0 to 255. The palette turns it into a colour that the page lays over the image in grey.

    Attributes:
        image: the image's key.
        call_id: the id of the call.
        file: the file of the picture, relative to the run folder.
        heads: the number of heads.
        patch_grid: the rows and columns of the patches of the image.
        query_grid: the rows and columns of the patches that have maps, evenly over the image.
        map_grid: the rows and columns of a map.
        is_thinned: the model computed more maps, or more queries, than the picture has.
        has_class_token: the last row of blocks begins with the class token's block.
    """

    image: str
    call_id: str
    file: FileName
    heads: Whole
    patch_grid: Axes
    query_grid: Axes
    map_grid: Axes
    is_thinned: bool
    has_class_token: bool = False


def mean_over_heads(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
