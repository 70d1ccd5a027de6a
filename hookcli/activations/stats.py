"""Compute mean, deviation, range, zeros and NaN of an activation in its hook, on its own device.

Two algorithms compute the same statistics. On the CPU, a fast algorithm sums in float32, or in
float64 for tensors of float64 or integers. If a value is not finite, or too large or small for sums
in float32, an exact algorithm in float64 runs instead. On a GPU, only the exact algorithm runs: it
copies no value to the host, so the host does not wait for the device.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli.records.statistics import STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

# The maximum number of values that are summed in one float32 accumulator per lane, with an error
# of 5e-7; with 1e6 values, the error would be 1e-5.
_RUN = 1 << 14
# Magnitudes whose squares can be summed in float32 without underflow or overflow.
_SAFE = (1e-15, 1e15)
_PIECE = 1 << 22  # values that the exact algorithm copies at once, unless a single row has more


@dataclass(frozen=True, slots=True)
class RowStats:
    # in the order of ``STATISTICS``; without any finite value, a row's numbers mean nothing
    table: Sequence[Sequence[float]] | Tensor
    # (rows, C); NaN for a channel that contains NaN; None without a channel axis
    low: Tensor | None
    high: Tensor | None  # as ``low``


def reduce_rows(rows: Tensor, channel_axis: int | None) -> RowStats:
    """Compute each row's statistics and, unless ``channel_axis`` is None, each channel's range."""
    values = as_real(rows.detach())
    if values.dtype not in (torch.float32, torch.float64):
        values = values.to(torch.float32 if values.is_floating_point() else torch.float64)
    if values.device.type == "mps":
        values = values.cpu()  # MPS has no float64
    if values.dim() == 1:
        values = values.unsqueeze(1)
    if values.numel() == 0:
        return RowStats([[0] * len(STATISTICS)] * len(values), None, None)
    low, high = _channel_range(values, channel_axis)
    fast = None
    if values.is_cpu:
        fast = _reduce_fast(values, low.amin(1).tolist(), high.amax(1).tolist())
    ranges = (None, None) if channel_axis is None else (low, high)
    if fast is not None:
        return RowStats([*zip(*(fast[name] for name in STATISTICS), strict=True)], *ranges)
    flat = values.flatten(1)
    pieces = torch.split(flat, max(1, _PIECE // flat.shape[1]))
    return RowStats(torch.cat([_reduce_piece(piece) for piece in pieces]), *ranges)


def as_real(values: Tensor) -> Tensor:
    """Dequantize values; replace complex ones with their magnitudes (NaN if either part is NaN)."""
    if not values.is_complex():
        return values.dequantize() if values.is_quantized else values
    wide = values.to(torch.complex64) if values.dtype == torch.complex32 else values
    return wide.abs().masked_fill(wide.isnan(), math.nan)


def _channel_range(values: Tensor, channel_axis: int | None) -> tuple[Tensor, Tensor]:
    axes = [axis for axis in range(1, values.dim()) if axis != channel_axis]
    if not axes:
        return values.clone(), values.clone()
    low, high = values.amin(axes), values.amax(axes)
    return (low, high) if low.dim() == 2 else (low.unsqueeze(1), high.unsqueeze(1))


def _reduce_fast(
    values: Tensor, lows: list[float], highs: list[float]
) -> dict[str, list[float]] | None:
    # The result is None if a value is not finite, or a row's largest magnitude is outside
    # ``_SAFE``: the row then needs the exact algorithm.
    for low, high in zip(lows, highs, strict=True):
        largest = max(-low, high)
        if not (largest == 0 or _SAFE[0] < largest < _SAFE[1]):  # this also catches NaN
            return None
    means, variances = _moments(values)
    zeros = _count_zeros(values)
    numel = values.shape[1:].numel()
    none = [0.0] * len(values)
    return {
        "mean": means,
        "std": list(map(math.sqrt, variances)),
        "min": lows,
        "max": highs,
        "zero_fraction": [count / numel for count in zeros],
        "nan_count": none,
        "inf_count": none,
    }


def _moments(values: Tensor) -> tuple[list[float], list[float]]:
    # The mean of the squares minus the square of the mean loses digits when the mean is large
    # compared with the standard deviation: the function then subtracts the means and sums again.
    numel = values.shape[1:].numel()
    axes = list(range(1, values.dim()))
    means = [total / numel for total in values.sum(axes).tolist()]
    squares = [norm * norm / numel for norm in _norms(values).tolist()]
    variances = [square - mean * mean for square, mean in zip(squares, means, strict=True)]
    if all(v >= 0.05 * square for v, square in zip(variances, squares, strict=True)):
        return means, variances
    shift = values.new_tensor(means)
    centred = values - shift.view(-1, *[1] * len(axes))
    rests = [total / numel for total in centred.sum(axes).tolist()]
    squares = [norm * norm / numel for norm in _norms(centred).tolist()]
    means = [mean + rest for mean, rest in zip(shift.tolist(), rests, strict=True)]
    return means, [max(0.0, s - rest * rest) for s, rest in zip(squares, rests, strict=True)]


def _norms(values: Tensor) -> Tensor:
    # For a whole row, ``vector_norm`` would use one float32 accumulator per lane, with an error of
    # 1 % over 1e8 values. Runs follow the memory order, so channels-last tensors are read in order.
    axes = _run_axes(values.shape, values.stride())
    nearest = axes[0]
    norms: Tensor
    if values.shape[nearest] > _RUN:
        pieces = torch.split(values, _RUN, nearest)
        norms = torch.stack([torch.linalg.vector_norm(p, dim=nearest) for p in pieces], -1)
    else:
        norms = torch.linalg.vector_norm(values, dim=axes)
    if norms.dim() > 1:
        norms = torch.linalg.vector_norm(norms.flatten(1), dim=1, dtype=torch.float64)
    return norms


@functools.lru_cache(maxsize=1024)
def _run_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes to sum together: those with the smallest strides, up to ``_RUN`` values."""
    # The run covers the first axis even if it is longer.
    nearest, *others = sorted(range(1, len(shape)), key=lambda axis: strides[axis])
    axes, length = [nearest], shape[nearest]
    for axis in others:
        length *= shape[axis]
        if length > _RUN:
            break
        axes.append(axis)
    return tuple(axes)


def _count_zeros(values: Tensor) -> list[int]:
    # Summing the magnitudes of signs is up to 25 times as fast as ``count_nonzero``, which branches
    # on every value. The sum is exact as long as float32 can hold the count.
    numel = values.shape[1:].numel()
    if numel > 1 << 24:
        return [numel - int(torch.count_nonzero(row)) for row in values]
    nonzero = values.sgn().abs_().sum(list(range(1, values.dim())))
    return [numel - int(count) for count in nonzero.tolist()]


def _reduce_piece(flat: Tensor) -> Tensor:
    # On a GPU, starting an operation takes longer than its arithmetic, so the operations are few:
    # where NaN and Inf are replaced by the row's mean, they do not change its deviation.
    finite = (flat - flat) == 0
    count = finite.sum(1)
    mean = torch.where(finite, flat, 0).sum(1, dtype=torch.float64) / count
    filled = torch.where(finite, flat, mean.unsqueeze(1))
    low = torch.where(finite, flat, torch.inf).amin(1)
    high = torch.where(finite, flat, -torch.inf).amax(1)
    spread = filled.sub_(mean.unsqueeze(1))
    scale = torch.maximum(high - mean, mean - low).clamp_min(torch.finfo(torch.float64).tiny)
    norm = torch.linalg.vector_norm(spread.div_(scale.unsqueeze(1)), dim=1)
    std = norm / count.double().sqrt() * scale
    nans = flat.isnan().sum(1)
    zeros = (flat == 0).sum(1, dtype=torch.float64) / flat.shape[1]
    return torch.stack([mean, std, low, high, zeros, nans, flat.shape[1] - count - nans], 1)
