"""Declare the columns of ``attention.csv``, and the fields that describe attention maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hookcli.outside.documents import Axes, Distance, FileName, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

Distances: TypeAlias = tuple[Distance | None, ...]


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """A row of ``attention.csv``, which describes one attention call over one image or many.

    If hookcli cannot observe the attention of a call, the row has a ``reason`` and no statistics.
    ``entropy``, ``prefix_share`` and ``distance`` have one number for each head: the mean over the
    images. The mean leaves out queries that only pad a window, and queries whose attention has NaN
    or Inf; the number is null if no query is left. ``prefix_share`` and ``distance`` are empty if
    hookcli does not know which part of the image each token covers.

    Attributes:
        order: the position of the call among the attention calls of a forward pass, counted from 1.
        call_id: ``attention:`` and the path of the module; with ``#1`` for its second call.
        module_path: the path of the module that computes the attention; empty for the model itself.
        module_type: the class name of the module that computes the attention.
        function: the torch function that hookcli observed: ``scaled_dot_product_attention``,
            ``multi_head_attention_forward`` or ``softmax``; empty if hookcli observed none.
        images: the number of images that the row covers.
        windows: into how many windows (as in Swin) the call divides the image; 1 if it does not.
        heads: the number of heads.
        queries: the number of queries in each window.
        keys: the number of keys in each window.
        query_grid: how many queries lie along the image's (rows, columns), or along a clip's
            (frames, rows, columns); empty if unknown.
        key_grid: how many keys lie along the axes of ``query_grid``; fewer if the model pools keys.
        prefix: the number of keys that cover no part of the image, such as a class token.
        entropy: for each head, the mean entropy of a query's attention in nats: 0 for a single key,
            log(keys) for equal attention to all keys.
        prefix_share: for each head, the share of the attention that goes to the ``prefix`` keys.
        distance: for each head, the mean distance between a query and a key on the image, weighted
            by the attention; 1 is one step in ``query_grid``.
        row_error: the largest difference between 1 and the sum of a query's attention to all keys.
        broken: the number of queries with NaN or Inf in their attention, over all heads and images.
        reason: why the attention, or the place of its tokens, is unknown; otherwise empty.
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
    """The attention maps of one call for one image, in one picture for the page of the run.

    A map shows how much one query of one head attends to each patch of the image. The picture has a
    block for each query, at the query's position on the image; a block holds one map per head, from
    top to bottom. A class token's block is below all other blocks, at the left. The palette index
    of a pixel is the attention, divided by the map's largest value and scaled to 0 to 255.

    Attributes:
        image: the image's key, its unique name in the run.
        call_id: the id of the attention call.
        file: the file of the picture, relative to the run folder.
        heads: the number of heads.
        patch_grid: the rows and columns of the call's queries on the image, before thinning.
        query_grid: the rows and columns of blocks in the picture, without a class token's block.
        map_grid: the rows and columns of one map.
        is_thinned: whether the picture has fewer queries or smaller maps than the model computed.
        has_class_token: whether the last row of blocks starts with the block of a class token.
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
    """Return the mean of the heads' values that are not None; None if there are no such values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
