"""Reductions of one activation, computed on its device and finished before the hook returns.

Two algorithms compute the same figures. On the CPU, a fast one reads the tensor five times in
place, checks that float32 sums were precise enough, and otherwise falls back to the exact one. On
other devices the exact one runs at once: it reads no value on the host, so nothing waits for the
device, and one transfer brings all figures to the host when the forward pass has ended.
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

# The longest run that is summed in one float32 accumulator per lane, with an error of 5e-7; runs
# of 1e6 values would have an error of 1e-5.
_RUN = 1 << 14
# Magnitudes whose squares can be summed in float32 without underflow or overflow.
_SAFE = (1e-15, 1e15)


@dataclass(frozen=True, slots=True)
class RowStats:
    """The figures of one tensor.

    Attributes:
        table: for each row the statistics in the order of ``STATISTICS``. Statistics of finite
            values mean nothing if no value is finite. A tensor is still on the device, as
            (rows, statistics) in float64.
        low: the smallest value of each channel, (rows, C); None without a channel axis.
        high: the largest value of each channel, (rows, C); None without a channel axis.
    """

    table: Sequence[Sequence[float]] | Tensor
    low: Tensor | None
    high: Tensor | None


def reduce_rows(rows: Tensor, channel_axis: int | None) -> RowStats:
    """Reduce each row of ``rows`` to its figures.

    Args:
        rows: a tensor (rows, …) with one image per row. Half precision is reduced in float32,
            quantized tensors are dequantized, and complex values count by their magnitudes.
        channel_axis: the axis that holds channels, 1 or more; None for no channels.
    """
    values = _as_float(rows)
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
    table: Sequence[Sequence[float]] | Tensor
    if fast is None:
        exact = _reduce_exact(values)
        table = torch.stack([exact[name] for name in STATISTICS], 1)
    else:
        table = list(zip(*(fast[name] for name in STATISTICS), strict=True))
    if channel_axis is None:
        return RowStats(table, None, None)
    return RowStats(table, low, high)


def _as_float(rows: Tensor) -> Tensor:
    values = rows.detach()
    if values.is_quantized:
        values = values.dequantize()
    if values.is_complex():
        values = magnitudes(values)
    if values.dtype in (torch.float32, torch.float64):
        return values
    return values.to(torch.float32 if values.is_floating_point() else torch.float64)


def magnitudes(values: Tensor) -> Tensor:
    """Return the magnitudes of complex values; NaN if the real or the imaginary part is NaN."""
    wide = values.to(torch.complex64) if values.dtype == torch.complex32 else values
    return wide.abs().masked_fill(wide.isnan(), math.nan)


def _channel_range(values: Tensor, channel_axis: int | None) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest values of the channels, each (rows, C).

    C is 1 without a channel axis. Both are NaN for a channel that holds NaN.
    """
    if channel_axis is None and len(values) == 1:
        low, high = values.aminmax()  # over a whole tensor, both in one pass
        return low.view(1, 1), high.view(1, 1)
    axes = [axis for axis in range(1, values.dim()) if axis != channel_axis]
    if not axes:
        return values.clone(), values.clone()
    low, high = values.amin(axes), values.amax(axes)
    return (low, high) if low.dim() == 2 else (low.unsqueeze(1), high.unsqueeze(1))


def _reduce_fast(
    values: Tensor, lows: list[float], highs: list[float]
) -> dict[str, list[float]] | None:
    """Return every statistic of all rows by name, in any order.

    Return None if float32 sums cannot hold the statistics, so that they need the exact algorithm.
    """
    for low, high in zip(lows, highs, strict=True):
        largest = max(-low, high)
        if not (largest == 0 or _SAFE[0] < largest < _SAFE[1]):  # this also catches NaN
            return None
    means, variances = _moments(values)
    zeros = _count_zeros(values, all_positive=min(lows) >= 0)
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
    """Return the mean and the population variance of each row, from float32 sums.

    The mean of the squares minus the square of the mean loses digits when the mean is large
    compared with the standard deviation. In that case this subtracts the means and sums again.
    """
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
    """Return the Euclidean norms, (rows,), computed from the norms of short runs.

    ``vector_norm`` uses one float32 accumulator per lane, with an error of 1 % over 1e8 values.
    Runs follow the order in memory, so that channels-last tensors are read sequentially.
    """
    axes = _run_axes(values.shape, values.stride())
    nearest = axes[0]
    norms: Tensor
    if values.shape[nearest] > _RUN:
        pieces = [
            torch.linalg.vector_norm(p, dim=nearest) for p in torch.split(values, _RUN, nearest)
        ]
        norms = torch.stack(pieces, -1)
    else:
        norms = torch.linalg.vector_norm(values, dim=axes)
    if norms.dim() > 1:
        norms = torch.linalg.vector_norm(norms.flatten(1), dim=1, dtype=torch.float64)
    return norms


@functools.lru_cache(maxsize=1024)
def _run_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of one run, the nearest in memory first."""
    nearest, *others = sorted(range(1, len(shape)), key=lambda axis: strides[axis])
    axes, length = [nearest], shape[nearest]
    for axis in others:
        length *= shape[axis]
        if length > _RUN:
            break
        axes.append(axis)
    return tuple(axes)


def _count_zeros(values: Tensor, *, all_positive: bool) -> list[int]:
    """Return the number of exact zeros in each row.

    Summing signs is up to 25 times as fast as ``count_nonzero``, which branches on every value. It
    is exact as long as float32 can hold the counts.
    """
    numel = values.shape[1:].numel()
    if numel > 1 << 24:
        return [numel - int(torch.count_nonzero(row)) for row in values]
    signs = values.sgn() if all_positive else values.sgn().abs_()
    nonzero = signs.sum(list(range(1, values.dim())))
    return [numel - int(count) for count in nonzero.tolist()]


def _reduce_exact(values: Tensor) -> dict[str, Tensor]:
    """Return every statistic, (rows,), by name, computed in float64 and two passes.

    The values may be of any kind.
    """
    flat = values.flatten(1).double()
    finite = flat.isfinite()
    count = finite.sum(1)
    mean = torch.where(finite, flat, 0).sum(1) / count
    spread = torch.where(finite, flat - mean.unsqueeze(1), 0)
    scale = spread.abs().amax(1).clamp_min(torch.finfo(torch.float64).tiny)
    std = (spread / scale.unsqueeze(1)).square().sum(1).div(count).sqrt() * scale
    nans = flat.isnan().sum(1)
    return {
        "mean": mean,
        "std": std,
        "min": torch.where(finite, flat, torch.inf).amin(1),
        "max": torch.where(finite, flat, -torch.inf).amax(1),
        "zero_fraction": (flat == 0).sum(1, dtype=torch.float64) / flat.shape[1],
        "nan_count": nans,
        "inf_count": flat.shape[1] - count - nans,
    }
