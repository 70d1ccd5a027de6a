"""Prepare activations for saving: choose channels, pool them, and convert their dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

from hookcli.activations.feature_maps import as_maps
from hookcli.hooks.nested import memory_of, to_dense

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookcli.config import SaveStyle
    from hookcli.records.layouts import Layout
    from hookcli.records.rows import LayerRow


def take_activation(activation: Tensor, layout: Layout, style: SaveStyle) -> Tensor:
    """Return a copy of the part of a tensor that ``style`` saves, on the tensor's own device.

    ``style`` says which channels to take, how to pool them, and the dtype. The copy is contiguous.
    """
    # Pooling by ``mean`` and ``max`` returns (rows, C), over frames and the tokens on the image,
    # too. Pooling to N returns (rows, C, N, N), for a clip (rows, C, D, N, N), and for a sequence
    # (rows, C, N). Tensors without height and width are not pooled.
    values = to_dense(activation)
    if values.is_quantized:
        values = values.dequantize()
    elif values.is_complex():
        values = values.to(torch.complex64)
    if style.channels is not None and layout.channel_axis is not None:
        inside = _present(style.channels, values.shape[layout.channel_axis])
        chosen = torch.tensor(inside, dtype=torch.int64, device=values.device)
        values = values.index_select(layout.channel_axis, chosen)
    if _is_pooled(layout, style):
        values = _pool(values, layout, style)
    if style.dtype is not None and values.is_floating_point():
        values = values.to(getattr(torch, style.dtype))
    kept = values.contiguous()
    return kept.clone() if memory_of(kept) == memory_of(activation) else kept


def saved_shape(shape: tuple[int, ...], layout: Layout, style: SaveStyle) -> tuple[int, ...]:
    axis = layout.channel_axis
    lengths = list(shape)
    if style.channels is not None and axis is not None:
        lengths[axis] = len(_present(style.channels, shape[axis]))
    if axis is None or not _is_pooled(layout, style):
        return tuple(lengths)
    maps = layout.maps_shape(lengths)
    if style.pool in ("mean", "max"):
        return maps[:2]
    pooled = 1 if layout.name == "NCL" else 2
    return (*maps[:-pooled], *[int(style.pool)] * pooled)


def saved_channels(rows: Iterable[LayerRow], style: SaveStyle | None) -> dict[str, list[int]]:
    if style is None or (chosen := style.channels) is None:
        return {}
    return {row.call_id: _present(chosen, row.channels) for row in rows if row.channels is not None}


def _present(channels: tuple[int, ...], count: int) -> list[int]:
    return [channel for channel in channels if channel < count]


def _is_pooled(layout: Layout, style: SaveStyle) -> bool:
    return style.pool != "none" and layout.height * layout.width > 0


def _pool(values: Tensor, layout: Layout, style: SaveStyle) -> Tensor:
    maps = as_maps(values.abs() if values.is_complex() else values, layout)
    if style.pool == "max":
        return maps.amax(tuple(range(2, maps.dim())))
    wide = maps.to(torch.float64 if maps.dtype == torch.float64 else torch.float32)
    means = wide.mean(tuple(range(2, maps.dim()))) if style.pool == "mean" else _grid(wide, style)
    return means.to(maps.dtype) if style.dtype is None and maps.is_floating_point() else means


def _grid(maps: Tensor, style: SaveStyle) -> Tensor:
    side = int(style.pool)
    if maps.shape[1] == 0:  # no requested channel exists, and torch cannot pool an empty tensor
        pooled = 1 if maps.dim() == 3 else 2
        return maps.new_empty((*maps.shape[:-pooled], *[side] * pooled))
    if maps.dim() == 3:
        return adaptive_avg_pool1d(maps, (side,))
    if maps.dim() == 4:
        return adaptive_avg_pool2d(maps, (side, side))
    return adaptive_avg_pool3d(maps, (None, side, side))
