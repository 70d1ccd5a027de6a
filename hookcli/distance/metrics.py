"""Compute distances of tensors, sketches or statistics, by numpy in float64; find swapped axes.

The distance between the tensors themselves is exact. The distance between their sketches is an
estimate, and the distance between their figures (statistics such as the mean) is a lower bound.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.distance.tolerance import Metric
    from hookcli.records.statistics import TotalStats

    TensorArray = NDArray[np.generic]

_WEAK = 0.1  # a channel is weak below this share of the median norm
_ROUNDING = 5e-7  # the difference, relative to the rms, of float32 sums in different orders
SAME = 0.01  # the largest relative L2 distance of tensors that are taken for the same
FAR = 0.1  # the largest relative L2 distance of tensors that count as similar
_MOST_AXES = 5


@dataclass(frozen=True, slots=True)
class Size:
    """Statistics of the magnitudes of a tensor's finite values; unknown ones are None."""

    rms: float  # the root of the mean square
    largest: float | None
    mean: float | None
    values: int  # the number of finite values

    def figure(self, metric: Metric) -> float | None:
        return {"rel-l2": self.rms, "max-abs": self.largest, "mean-abs": self.mean}[metric]


@dataclass(frozen=True, slots=True)
class Distance:
    difference: Size  # of B - A, where both are finite
    a: Size
    b: Size
    cosine: float | None  # None if it is unknown, or if A or B is zero everywhere
    # the number of positions where A or B is not finite and the two values differ; from sketches
    # and figures, the difference in the counts of NaN and Inf
    misplaced: int = 0
    # the number of positions where both are NaN; from sketches and figures, of NaN and Inf in both
    nans: int = 0
    source: str = "tensors"  # what was compared: ``tensors``, ``sketches`` or ``figures``
    channels: tuple[float, float] | None = None  # as ``measure_channels`` returns them

    @property
    def has_angle(self) -> bool:
        return bool(self.a.rms and self.b.rms)

    @property
    def rel_l2(self) -> float:
        if self.difference.rms == 0:
            return 0.0
        return self.difference.rms / self.a.rms if self.a.rms else math.inf

    def excess(self, metric: Metric, rtol: float, atol: float) -> float | None:
        """Return the distance divided by the largest tolerated distance; None if it is unknown.

        The latter is ``atol + rtol * (size of A)``, or ``rtol`` for the metric ``cosine``.
        """
        if metric == "cosine":
            if self.cosine is not None:
                return _over(1 - self.cosine, rtol)
            if self.has_angle:
                return None
            return 0.0 if self.difference.rms == 0 else math.inf
        difference, size = self.difference.figure(metric), self.a.figure(metric)
        return None if difference is None or size is None else _over(difference, atol + rtol * size)

    def limit(self, metric: Metric, rtol: float, atol: float) -> float:
        if metric == "cosine":
            return rtol
        if metric == "rel-l2":
            return rtol + atol / self.a.rms if self.a.rms else rtol
        return atol + rtol * (self.a.figure(metric) or 0)


def measure_arrays(
    a: TensorArray, b: TensorArray, axis: int | None = None, floor: float = 0.0
) -> Distance:
    """Return the exact distance of array B from array A, which has the same shape.

    If the channel axis ``axis`` is given, the result also has the distances of channels, which
    ``measure_channels`` computes with ``floor``.
    """
    whole = a.dtype.kind in "iub" and b.dtype.kind in "iub"
    # The difference of integers is exact even above 2**53.
    exact = (b.astype(np.int64) - a.astype(np.int64)).ravel() if whole else None
    one, two = _widen(a), _widen(b)
    both = np.isfinite(one) & np.isfinite(two)
    misplaced = nans = 0
    if not both.all():
        nan = np.isnan(one) & np.isnan(two)
        nans = int(nan.sum())
        misplaced = int((~both & ~nan & (one != two)).sum())
        one, two = one[both], two[both]
    difference = two - one if exact is None else exact.astype(np.float64)
    sizes = _size(difference), _size(one), _size(two)
    channels = None if axis is None else measure_channels(a, b, axis, floor)
    return Distance(*sizes, _cosine(one, two), misplaced, nans, channels=channels)


def measure_channels(
    a: TensorArray, b: TensorArray, axis: int, floor: float = 0.0
) -> tuple[float, float] | None:
    """Return the median and the maximum of the channels' relative L2 distances between A and B.

    ``axis`` is the channel axis. A channel counts as equal if the root mean square of its
    difference is at most ``floor``. Return None if the arrays are empty or have NaN or Inf.
    """
    # Channels that are zero in both do not count. A weak channel is measured relative to a tenth of
    # the median norm of the channels that are not zero.
    if not a.size:
        return None
    one, two = (_widen(np.moveaxis(each, axis, 0)).reshape(each.shape[axis], -1) for each in (a, b))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        norms, errors = np.linalg.norm(one, axis=1), np.linalg.norm(two - one, axis=1)
        if not np.isfinite(norms + errors).all():
            return None
        usual = float(np.median(norms[norms > 0])) if norms.any() else 0.0
        errors[errors <= floor * math.sqrt(one.shape[1])] = 0
        sizes = np.maximum(norms, _WEAK * usual)
        relative = np.divide(errors, sizes, out=np.zeros_like(errors), where=errors > 0)
        used = relative[norms + errors > 0]
    return (float(np.median(used)), float(used.max())) if used.size else (0.0, 0.0)


def measure_figures(a: TotalStats, b: TotalStats) -> Distance:
    """Return a lower bound of the distance of two tensors, given their statistics."""
    # The root mean square of B - A is at least the root of the sum of two squared changes: of the
    # mean and of the standard deviation. Its maximum is at least the change of either extreme.
    finite = min(a.finite, b.finite)
    names = ("mean", "std", "min", "max")
    pairs = ((getattr(a, name) or 0.0, getattr(b, name) or 0.0) for name in names)
    mean, std, low, high = (abs(of_a - of_b) for of_a, of_b in pairs)
    one, two = _proven_size(a), _proven_size(b)
    rounded = _ROUNDING * max(one.rms, two.rms)
    moved = math.hypot(max(0.0, mean - rounded), max(0.0, std - rounded))
    largest = max(low, high)
    rms = max(moved, largest / math.sqrt(finite)) if finite else 0.0
    counts = ((a.nan_count, b.nan_count), (a.inf_count, b.inf_count))
    misplaced, nans = sum(abs(of_a - of_b) for of_a, of_b in counts), sum(map(min, counts))
    difference = Size(rms, largest, None, finite)
    return Distance(difference, one, two, None, misplaced, nans, source="figures")


def _proven_size(stats: TotalStats) -> Size:
    largest = max(abs(stats.min or 0.0), abs(stats.max or 0.0)) if stats.finite else None
    return Size(math.hypot(stats.mean or 0.0, stats.std or 0.0), largest, None, stats.finite)


def measure_sketches(
    sketches: tuple[NDArray[np.float32], NDArray[np.float32]],
    figures: tuple[TotalStats, TotalStats],
) -> Distance:
    proven = measure_figures(*figures)
    one, two = (sketch.astype(np.float64) for sketch in sketches)
    finite = proven.difference.values
    estimate = float(np.linalg.norm(two - one)) / math.sqrt(finite) if finite else 0.0
    difference = Size(max(estimate, proven.difference.rms), None, None, finite)
    return replace(proven, difference=difference, cosine=_cosine(one, two), source="sketches")


def _over(distance: float, tolerated: float) -> float:
    if tolerated:
        return distance / tolerated
    return 0.0 if distance <= 0 else math.inf


def _widen(values: TensorArray) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):  # numpy would warn about a signaling NaN
        return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64).ravel()


def _size(values: NDArray[Any]) -> Size:
    if not values.size:
        return Size(0.0, 0.0, 0.0, 0)
    magnitudes = np.abs(values)
    largest = float(magnitudes.max())
    scaled = magnitudes / largest if largest else magnitudes  # squares do not under- or overflow
    rms = largest * math.sqrt(_dot(scaled, scaled) / values.size)
    return Size(rms, largest, float(magnitudes.mean()), values.size)


def _cosine(one: NDArray[Any], two: NDArray[Any]) -> float | None:
    """Return the cosine of the angle between two arrays; None if one is zero everywhere."""
    norms = [float(np.abs(values).max(initial=0.0)) for values in (one, two)]
    if not all(norms):
        return None
    one, two = one / norms[0], two / norms[1]
    return max(-1.0, min(1.0, _dot(one, two) / math.sqrt(_dot(one, one) * _dot(two, two))))


def _dot(one: NDArray[Any], two: NDArray[Any]) -> float:
    # A complex value counts as two real ones. The BLAS threads of ``@`` cost 40 ms on busy cores.
    return float((one * two.conj()).sum().real)


def is_same(a: TensorArray, b: TensorArray, most: float = SAME) -> bool:
    return measure_flat(a, b) < most


def measure_flat(a: TensorArray, b: TensorArray) -> float:
    if a.size != b.size:
        return float("inf")
    distance = measure_arrays(a.reshape(-1), b.reshape(-1))
    return float("inf") if distance.misplaced else distance.rel_l2


def find_axes(a: TensorArray, b: TensorArray) -> tuple[int, ...]:
    """Return the order of axes for which ``a.transpose(order)`` is close to ``b``.

    The order is empty if ``b`` is not a transposed ``a``.
    """
    # Axes of length 1 stay, if possible.
    kinds = {a.dtype.kind, b.dtype.kind}
    if kinds != {"f"} or a.ndim > _MOST_AXES or sorted(a.shape) != sorted(b.shape):
        return ()
    norms = [float(np.linalg.norm(each.astype("f4").ravel())) for each in (a, b)]
    if not np.isfinite(norms).all() or abs(norms[0] - norms[1]) > SAME * norms[0]:
        return ()
    long_axes = [axis for axis, length in enumerate(a.shape) if length > 1]
    for order in itertools.permutations(range(a.ndim)):
        kept = [axis for axis in order if axis in long_axes]
        turned = a.transpose(order)
        is_new = a.shape != b.shape or kept != long_axes
        if is_new and turned.shape == b.shape and measure_arrays(turned, b).rel_l2 < SAME:
            return order
    return ()


def axes_text(order: tuple[int, ...]) -> str:
    moved = [axis for index, axis in enumerate(order) if index != axis]
    if len(moved) == 2:
        return f"axes {min(moved)} and {max(moved)} are swapped"
    return f"B has the axes {', '.join(map(str, order))} of A"
