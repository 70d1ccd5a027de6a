"""Recompute attention probabilities, since fused attention functions do not return them."""

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


def call_probabilities(
    function: str, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
) -> Tensor:
    """Return a call's attention probabilities, (…, queries, keys) in float32, without dropout.

    The call was ``function(*args, **kwargs)``, and returned ``output``. ``function`` is
    ``softmax``, ``scaled_dot_product_attention`` or ``multi_head_attention_forward``.
    """
    # As in torch's own function, the probabilities are zeros if masks hide all keys. They may share
    # memory with the output of the model's softmax.
    with torch.no_grad():
        if function == "softmax":
            probabilities: Tensor = output.float()
            return probabilities
        if function == "scaled_dot_product_attention":
            return _of_products(*args, **kwargs)
        return _of_modules(MULTI_HEAD_ARGUMENTS.bind(*args, **kwargs).arguments)


def _of_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,  # noqa: ARG001 - the arguments of torch's function, in its order
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001
    is_causal: bool = False,  # noqa: FBT001
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001
) -> Tensor:
    queries, keys = query.float(), key.float()
    if enable_gqa:
        keys = keys.repeat_interleave(queries.shape[-3] // keys.shape[-3], -3)
    if is_causal:
        shape = (queries.shape[-2], keys.shape[-2])
        attn_mask = torch.ones(shape, dtype=torch.bool, device=queries.device).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _softmax((queries * scale) @ keys.transpose(-2, -1), attn_mask)


def _softmax(scores: Tensor, *masks: Tensor | None) -> Tensor:
    # Overwrites ``scores`` (…, queries, keys). A boolean mask hides the keys where it is False; any
    # other mask is added to the scores. A query whose keys are all hidden gets zeros.
    for mask in masks:
        if mask is not None and mask.dtype == torch.bool:
            scores.masked_fill_(~mask, -torch.inf)
        elif mask is not None:
            scores += mask
    highest = scores.amax(-1, keepdim=True)
    scores.sub_(highest.masked_fill_(highest == -torch.inf, 0)).exp_()
    total = scores.sum(-1, keepdim=True)
    return scores.div_(total.masked_fill_(total == 0, 1))


def _of_modules(given: Mapping[str, Any]) -> Tensor:
    """Return the probabilities (N, heads, queries, keys) of a multi-head attention call."""
    # ``given`` has the arguments by name. N is the number of windows of an image, or 1. Projecting
    # only queries and keys halves the work of torch's function, which hookcli calls only if the
    # call adds keys that do not come from the image (``bias_k``, ``add_zero_attn``).
    if given["bias_k"] is not None or given.get("static_k") is not None or given["add_zero_attn"]:
        asked = {"need_weights": True, "average_attn_weights": False, "training": False}
        weights: Any = functional.multi_head_attention_forward(**{**given, **asked})[1]
        return torch.as_tensor(weights).float().reshape(-1, *weights.shape[-3:])
    width, heads = given["embed_dim_to_check"], given["num_heads"]
    queries, keys = (_project(given, index, name) for index, name in enumerate(("query", "key")))
    scores = (queries * (width // heads) ** -0.5) @ keys.transpose(-2, -1)
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(scores.shape)
    if padding is not None:
        padding = padding.reshape(-1, 1, 1, scores.shape[-1])
    if mask is None and padding is None:
        shares: Tensor = scores.softmax(-1)
        return shares
    masks = (mask, padding)  # unlike in the function above, True hides a key
    shown = (~each if each is not None and each.dtype == torch.bool else each for each in masks)
    return _softmax(scores, *shown)


def _project(given: Mapping[str, Any], index: int, name: str) -> Tensor:
    # Returns (N, heads, tokens, width). ``name`` is ``query`` with ``index`` 0, or ``key`` with 1.
    width, heads = given["embed_dim_to_check"], given["num_heads"]
    part = slice(index * width, (index + 1) * width)
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    own = given[f"{name[0]}_proj_weight"] if given.get("use_separate_proj_weight") else weight[part]
    tokens = given[name] if given[name].dim() == 3 else given[name][:, None]
    projected = functional.linear(tokens, own, None if bias is None else bias[part]).float()
    return projected.reshape(*projected.shape[:2], heads, -1).permute(1, 2, 0, 3)
