"""Choose and scale an activation's channels as tiles or bars; compute heat maps and Grad-CAM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d

from hookcli.activations.stats import as_real
from hookcli.records.pictures import LEVELS, MAP_LEVELS, MOST_BARS, MOST_SIDE

if TYPE_CHECKING:
    from hookcli.config import CamMethod, GridStyle, HeatOf
    from hookcli.records.calls import Call
    from hookcli.records.layouts import Layout


_TINY = 1e-6  # keeps the weights of Grad-CAM++ finite


@dataclass(frozen=True, slots=True)
class Tiles:
    # (K, h, w) in uint8: 0 to LEVELS - 1, or NOT_FINITE; signed from 1, with 0 at MIDDLE
    levels: Tensor
    channels: Tensor  # of the tiles, (K,)
    total: int
    shown: tuple[int, int]  # height and width of a map before it was scaled down
    # (4, K): minimum, maximum, mean and standard deviation; with NaN or Inf, the last are NaN
    figures: Tensor
    scores: Tensor | None = None  # of ``rank_by_focus``, (K,)
    maps: Tensor | None = None  # (K, H, W) in levels of ``ChannelMaps``, at the layer's resolution
    range: Tensor | None = None  # (2,): the layer's lowest and highest value, if all tiles share it


@dataclass(frozen=True, slots=True)
class Bars:
    values: Tensor  # (n,) in float32
    per_channel: bool  # one bar for the mean of each channel
    run: int  # how many consecutive values each bar averages


@dataclass(frozen=True, slots=True)
class Picture:
    image: str
    call: Call
    layout: Layout
    shape: tuple[int, ...]  # of one image's part of the tensor, (1, …)
    content: Tiles | Bars

    @property
    def has_maps(self) -> bool:
        return isinstance(self.content, Tiles) and self.content.maps is not None


def take_tiles(
    activation: Tensor, layout: Layout, style: GridStyle, focus: Tensor | None = None
) -> Tiles | Bars:
    # ``focus`` (2, H, W) ranks channels by how much larger they are inside a box than outside.
    values = as_real(activation.detach()).float()
    if not layout.is_spatial:
        return _take_bars(values, layout)
    maps = _as_pictures(values, layout)
    scores = None if focus is None else rank_by_focus(maps, focus)
    channels = _choose_channels(maps, style, scores)
    chosen = maps[channels]
    low, high = _finite_range(chosen, (1, 2))
    means = chosen.mean((1, 2))
    rest = torch.linalg.vector_norm(chosen - means.view(-1, 1, 1), dim=(1, 2))
    spreads = rest / max(1, chosen[0].numel() if len(chosen) else 1) ** 0.5
    figures = torch.stack([low.flatten(), high.flatten(), means, spreads])
    whole = None
    if style.scale == "layer":
        low, high = _finite_range(maps, (0, 1, 2))
        whole = torch.stack([low.flatten()[0], high.flatten()[0]])
    to_levels = _to_signed_levels if style.signed else _to_levels
    large = None
    if style.mode == "layers":
        large = to_levels(_shrink(chosen, MOST_SIDE), low, high, MAP_LEVELS)
    levels = to_levels(_shrink(chosen, style.tile), low, high, LEVELS)
    size = maps.shape[1], maps.shape[2]
    scores = None if scores is None else scores[channels]
    return Tiles(levels, channels, len(maps), size, figures, scores, maps=large, range=whole)


def take_heat(activation: Tensor, layout: Layout, of: HeatOf) -> Tensor:
    maps = _as_pictures(as_real(activation.detach()).float(), layout)
    if of == "max":
        return maps.amax(0)
    norms: Tensor = maps.norm(dim=0)
    return norms if of == "l2" else maps.sum(0) if of == "sum" else maps.mean(0)


def take_cam(
    activation: Tensor, gradient: Tensor, layout: Layout, method: CamMethod = "gradcam"
) -> Tensor:
    """Compute a class activation map (h, w) from a layer's output (1, …) and its gradient.

    Its negative values are not part of the map, but they tell why it may be zero everywhere.
    """
    maps, slopes = (_as_pictures(part.detach().float(), layout) for part in (activation, gradient))
    if method == "hirescam":  # Draelos et al. 2020, https://arxiv.org/abs/2011.08891, equation 5
        return (maps * slopes).sum(0)
    if method == "layercam":  # Jiang et al. 2021, https://doi.org/10.1109/TIP.2021.3089943
        return (maps * slopes.clamp(0)).sum(0)
    if method == "eigencam":  # Muhammad and Yeasin 2020, https://arxiv.org/abs/2008.00299
        return _project(maps)
    if method == "gradcam++":  # Chattopadhyay et al. 2018, https://arxiv.org/abs/1710.11063
        below = 2 * slopes**2 + maps.sum((1, 2), keepdim=True) * slopes**3
        weights = torch.where(slopes == 0, 0, slopes**2 / (below + _TINY)) * slopes.clamp(0)
        return (maps * weights.sum((1, 2), keepdim=True)).sum(0)
    # Selvaraju et al. 2017, https://arxiv.org/abs/1610.02391, equations 1 and 2
    return (maps * slopes.mean((1, 2), keepdim=True)).sum(0)


def _project(maps: Tensor) -> Tensor:
    # On the first principal component of the channels (C, h, w). Its sign is arbitrary, and becomes
    # positive where the channels are strongest.
    places = maps.flatten(1).T.double()
    centred = places - places.mean(0)
    component: Tensor = torch.linalg.svd(centred, full_matrices=False).Vh[0]
    projected = centred @ component
    strength = places.norm(dim=1)
    is_turned = (projected * (strength - strength.mean())).sum() < 0
    return (-projected if is_turned else projected).float().reshape(maps.shape[1:])


def rank_by_focus(maps: Tensor, focus: Tensor) -> Tensor:
    """Return how far each channel's mean inside the box of ``--focus`` exceeds its mean outside.

    ``maps`` are (C, h, w). ``focus`` (2, H, W) has two numbers for each pixel of the network's
    input: the share inside the box, and the share outside. The result (C,) is measured in standard
    deviations of the channel.
    """
    shares = adaptive_avg_pool2d(focus.to(maps), (maps.shape[1], maps.shape[2]))
    means = [(maps * share).sum((1, 2)) / share.sum().clamp_min(1e-6) for share in shares]
    spread = maps.std((1, 2), correction=0)
    return torch.where(spread == 0, 0, (means[0] - means[1]) / spread)


def as_maps(values: Tensor, layout: Layout) -> Tensor:
    """Rearrange values to (N, C, h, w), a clip to (N, C, D, h, w), or a sequence to (N, C, L)."""
    maps = values.permute(layout.channels_first)[..., layout.image_tokens]
    return maps.reshape(layout.maps_shape(values.shape))


def _as_pictures(values: Tensor, layout: Layout) -> Tensor:
    """Return the maps (C, h, w) of an activation (1, …), or of the middle frame of a clip."""
    maps = as_maps(values, layout)[0]
    if layout.frame_axis is not None:
        maps = maps[:, maps.shape[1] // 2]
    return maps.reshape(len(maps), layout.height, layout.width)


def _choose_channels(maps: Tensor, style: GridStyle, scores: Tensor | None) -> Tensor:
    count = len(maps)
    if style.channels is not None:
        inside = [channel for channel in style.channels if channel < count]
        return torch.tensor(inside, dtype=torch.int64, device=maps.device)
    if scores is None and style.rank == "index":
        return torch.arange(count, device=maps.device)[: style.top]
    ranked = _rank_scores(maps, style.rank) if scores is None else scores
    ranked = ranked.nan_to_num(torch.inf, torch.inf, torch.inf)
    return torch.sort(ranked, descending=True, stable=True).indices[: style.top]


def _rank_scores(maps: Tensor, rank: str) -> Tensor:
    means = maps.mean((1, 2))
    if rank == "mean":
        return means
    if rank == "max":
        return maps.amax((1, 2)) + 0 * means  # an Inf or NaN anywhere is in the mean too
    spreads: Tensor = torch.linalg.vector_norm(maps - means.view(-1, 1, 1), dim=(1, 2))
    return spreads


def _finite_range(maps: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    finite = maps.isfinite()
    low = torch.where(finite, maps, torch.inf).amin(axes, keepdim=True)
    high = torch.where(finite, maps, -torch.inf).amax(axes, keepdim=True)
    return low, high


def _shrink(maps: Tensor, tile: int) -> Tensor:
    factor = -(-max(maps.shape[1:]) // tile)
    if factor == 1 or len(maps) == 0:
        return maps
    pool = [min(factor, length) for length in maps.shape[1:]]
    return avg_pool2d(maps.unsqueeze(0), pool, ceil_mode=True, count_include_pad=False).squeeze(0)


def _to_levels(maps: Tensor, low: Tensor, high: Tensor, count: int) -> Tensor:
    """Scale ``low`` … ``high`` to integers 0 … ``count - 1``; NaN and Inf become ``count``."""
    span = (high / 2 - low / 2).clamp_min(torch.finfo(torch.float32).tiny)  # halves cannot overflow
    levels = ((maps / 2 - low / 2) / span * (count - 1)).round_()
    return torch.where(maps.isfinite(), levels, count).to(torch.uint8)


def _to_signed_levels(maps: Tensor, low: Tensor, high: Tensor, count: int) -> Tensor:
    # 0 becomes ``count // 2``, and NaN and Inf become ``count``. The scale follows from ``low`` or
    # ``high``, whichever is farther from 0.
    middle = count // 2
    largest = torch.maximum(-low, high).clamp_min(torch.finfo(torch.float32).tiny)
    levels = (maps / largest * (count - 1 - middle)).round_() + middle
    return torch.where(maps.isfinite(), levels, count).to(torch.uint8)


def _take_bars(values: Tensor, layout: Layout) -> Bars:
    channel = layout.channel_axis
    if channel is not None and values.shape[channel] <= 4 * MOST_BARS:
        axes = [axis for axis in range(values.dim()) if axis != channel]
        run = values.numel() // max(1, values.shape[channel])
        return Bars(values.mean(axes) if run > 1 else values.flatten().clone(), True, run)
    flat = values.flatten()
    run = max(1, -(-flat.numel() // MOST_BARS))
    whole = flat.numel() // run * run
    means = flat[:whole].view(-1, run).mean(1)
    rest = flat[whole:].mean(0, keepdim=True)[: flat.numel() - whole]
    return Bars(torch.cat([means, rest]), False, run)
