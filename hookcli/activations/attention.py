"""The probabilities of an attention, computed aside from what its function was given.

The model computes what it always does: a fused function never makes the probabilities, so they are
computed once more from the queries and keys, in float32, for one image at a time. For an image of
1,374 tokens and 16 heads they take 120 MB.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MULTI_HEAD_ARGUMENTS = inspect.signature(functional.multi_head_attention_forward)


def image_probabilities(
    function: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    output: Any,
    image: int = 0,
    images: int = 1,
) -> Tensor:
    """Return the probabilities of one image: the share of each query's attention on each key.

    Dropout is left out. A query that may see no key has zeros, as torch's own function gives it.

    Args:
        function: ``scaled_dot_product_attention``, ``multi_head_attention_forward`` or ``softmax``.
        args: the positional arguments of the call.
        kwargs: its keyword arguments.
        output: what it returned; only that of a softmax is used.
        image: the place of the image in the batch, from 0.
        images: the number of images in the batch, which is the slowest axis, if only a part of the
            leading one: windows and heads come after it.

    Returns:
        Probabilities (…, queries, keys) as float32. Those of a softmax may share the memory of its
        output, so they must not be written over. ``TokenPlaces.arrange`` orders the leading axes.
    """
    with torch.no_grad():
        if function == "softmax":
            return _rows_of(output, image, images).float()
        if function == "scaled_dot_product_attention":
            return _of_products(image, images, *args, **kwargs)
        return _of_modules(image, images, MULTI_HEAD_ARGUMENTS.bind(*args, **kwargs).arguments)


def _rows_of(tensor: Tensor, image: int, images: int) -> Tensor:
    """Return the rows of one image, or all rows if they are too few to be those of each image."""
    if len(tensor) < images:
        return tensor
    rows = len(tensor) // images
    return tensor[image * rows : (image + 1) * rows]


def _of_products(
    image: int,
    images: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,  # noqa: ARG001 - the arguments of torch's function, in its order
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001
    is_causal: bool = False,  # noqa: FBT001
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001
) -> Tensor:
    """Return the probabilities of ``scaled_dot_product_attention``, whose arguments these are."""
    if attn_mask is not None and attn_mask.dim() == query.dim():
        attn_mask = _rows_of(attn_mask, image, images)
    queries, keys = (_rows_of(part, image, images).float() for part in (query, key))
    if enable_gqa:
        keys = keys.repeat_interleave(queries.shape[-3] // keys.shape[-3], -3)
    if is_causal:
        attn_mask = torch.ones(
            queries.shape[-2], keys.shape[-2], dtype=torch.bool, device=queries.device
        ).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _softmax((queries * scale) @ keys.transpose(-2, -1), attn_mask)


def _softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax of scores, which are written over, with zeros where no key may be seen.

    Args:
        scores: the scores (…, queries, keys).
        mask: True where a key may be seen, or numbers that are added to the scores.
    """
    if mask is not None and mask.dtype == torch.bool:
        scores.masked_fill_(~mask, -torch.inf)
    elif mask is not None:
        scores += mask
    highest = scores.amax(-1, keepdim=True)
    scores.sub_(highest.masked_fill_(highest == -torch.inf, 0)).exp_()
    total = scores.sum(-1, keepdim=True)
    return scores.div_(total.masked_fill_(total == 0, 1))


def _of_modules(image: int, images: int, given: Mapping[str, Any]) -> Tensor:
    """Return the probabilities of ``multi_head_attention_forward``, (N, heads, queries, keys).

    N is the number of sequences of one image: its windows, or 1. Only queries and keys are
    projected again, half of what the function does. The rare forms with further keys, which are not
    computed from the image, are left to torch.
    """
    one = dict(given)
    if given["query"].dim() == 3:
        for name in ("query", "key", "value"):
            one[name] = _rows_of(given[name].transpose(0, 1), image, images).transpose(0, 1)
    for name, axes in (("key_padding_mask", 2), ("attn_mask", 3)):
        mask = given.get(name)
        if mask is not None and mask.dim() == axes:
            one[name] = _rows_of(mask, image, images)
    if any(given.get(name) is not None for name in ("bias_k", "static_k")) or one["add_zero_attn"]:
        one |= {"need_weights": True, "average_attn_weights": False, "training": False}
        weights: Any = functional.multi_head_attention_forward(**one)[1]
        return torch.as_tensor(weights).float().reshape(-1, *weights.shape[-3:])
    width, heads = one["embed_dim_to_check"], one["num_heads"]
    queries, keys = (_project(one, place, name) for place, name in enumerate(("query", "key")))
    scores = (queries * (width // heads) ** -0.5) @ keys.transpose(-2, -1)
    mask, padding = one.get("attn_mask"), one.get("key_padding_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(scores.shape)
    if padding is not None:
        padding = padding.reshape(-1, 1, 1, scores.shape[-1])
    if mask is None and padding is None:
        shares: Tensor = scores.softmax(-1)
        return shares
    for hidden in (mask, padding):  # unlike in the function above, True hides a key
        if hidden is not None and hidden.dtype == torch.bool:
            scores.masked_fill_(hidden, -torch.inf)
        elif hidden is not None:
            scores += hidden
    return _softmax(scores, None)


def _project(given: Mapping[str, Any], place: int, name: str) -> Tensor:
    """Return projected queries (place 0) or keys (1) of one image, (N, heads, tokens, width)."""
    width, heads = given["embed_dim_to_check"], given["num_heads"]
    part = slice(place * width, (place + 1) * width)
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    own = given[f"{name[0]}_proj_weight"] if given.get("use_separate_proj_weight") else weight[part]
    tokens = given[name] if given[name].dim() == 3 else given[name][:, None]
    projected = functional.linear(tokens, own, None if bias is None else bias[part]).float()
    return projected.reshape(*projected.shape[:2], heads, -1).permute(1, 2, 0, 3)
