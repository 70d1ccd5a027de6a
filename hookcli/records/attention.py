"""The figures of an attention call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """One attention call, with its figures head by head, as means over the images.

    Attributes:
        order: the position among the attention calls of a forward, from 1.
        call_id: ``attention:blocks.3.attn``, the module that computes it.
        module_path: the path of that module.
        module_type: its class name.
        function: the function of torch that computes the probabilities; empty if none is visible.
        images: over how many images the figures are means.
        heads: the number of heads.
        queries: the number of queries, over all windows.
        keys: the number of keys that one query can see.
        windows: the number of windows; 1 if every query sees the whole image.
        query_grid: the rows and columns of the patches that the queries stand for; empty if they
            stand for no part of the image.
        key_grid: the same of the keys.
        prefix: the number of keys that stand for no part of the image, such as a class token.
        entropy: the entropy of each head in nats, as a mean over the queries: 0 if each query looks
            at one key alone.
        prefix_share: the share of its attention that each head gives to the prefix.
        distance: how far each head looks, in patches.
        reason: why the attention is not visible, or why it is not known which parts of the image
            its tokens stand for; empty if both are known.
    """

    order: int
    call_id: str
    module_path: str
    module_type: str
    function: str = ""
    images: int = 0
    heads: int = 0
    queries: int = 0
    keys: int = 0
    windows: int = 0
    query_grid: tuple[int, ...] = ()
    key_grid: tuple[int, ...] = ()
    prefix: int = 0
    entropy: tuple[float | None, ...] = ()
    prefix_share: tuple[float | None, ...] = ()
    distance: tuple[float | None, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """The maps of one attention call for one image, in one picture for the page.

    Column by column the picture holds the maps of one query, row by row those of one head. A pixel
    is the share of the largest value of its map, from 0 to 255.

    Attributes:
        image: the image's key.
        call_id: the id of the call.
        file: the file of the picture, relative to the run folder.
        heads: the number of heads.
        query_grid: the rows and columns of the queries that have maps, evenly over the image.
        map_grid: the rows and columns of a map.
        is_thinned: the maps or the queries are fewer than those that the model computed.
    """

    image: str
    call_id: str
    file: str
    heads: int
    query_grid: tuple[int, ...]
    map_grid: tuple[int, ...]
    is_thinned: bool
