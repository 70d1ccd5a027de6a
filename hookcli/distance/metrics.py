"""How far one tensor is from another: exactly from both, or estimated from their sketches. numpy, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.distance.tolerance import Metric


@dataclass(frozen=True, slots=True)
class Size:
    """How large the values of a tensor are: of the finite ones, None where that is not known.

    Attributes:
        rms: root of the mean square.
        largest: magnitude.
        mean: magnitude.
        values: how many there are.
    """

    rms: float
    largest: float | None
    mean: float | None
    values: int

    def figure(self, metric: Metric) -> float | None:
        """The figure that a metric other than ``cosine`` goes by."""
        figures = {"rel-l2": self.rms, "max-abs": self.largest, "mean-abs": self.mean}
        return figures[metric]


@dataclass(frozen=True, slots=True)
class Distance:
    """How far B is from A.

    Attributes:
        apart: the size of B - A, over the places where both are finite.
        a: the size of A there.
        b: the size of B there.
        cosine: of the angle between them; None where one is zero.
        misplaced: places where one of the two is not finite and the other is not the same.
        nans: places where both are NaN; from sketches how many NaN and Inf both have, wherever.
        source: ``tensors`` or ``sketches``.
    """

    apart: Size
    a: Size
    b: Size
    cosine: float | None
    misplaced: int = 0
    nans: int = 0
    source: str = "tensors"

    @property
    def rel_l2(self) -> float:
        """L2 norm of the difference over that of A; 0 where both are zero, Inf where only A is."""
        if self.apart.rms == 0:
            return 0.0
        return self.apart.rms / self.a.rms if self.a.rms else math.inf

    def excess(self, metric: Metric, rtol: float, atol: float) -> float | None:
        """The distance over what is tolerated: it holds up to 1. None where the metric is not known."""
        if metric == "cosine":
            if self.cosine is None:  # one is zero everywhere
                return 0.0 if self.apart.rms == 0 else math.inf
            return _over(1 - self.cosine, rtol)
        apart, size = self.apart.figure(metric), self.a.figure(metric)
        return None if apart is None or size is None else _over(apart, atol + rtol * size)

    def limit(self, metric: Metric, rtol: float, atol: float) -> float:
        """What is tolerated of the figure that decides, in its own unit; of ``cosine`` it is 1 less that."""
        if metric == "cosine":
            return rtol
        if metric == "rel-l2":
            return rtol + atol / self.a.rms if self.a.rms else rtol
        return atol + rtol * (self.a.figure(metric) or 0)


def measure_arrays(a: NDArray[np.generic], b: NDArray[np.generic]) -> Distance:
    """The exact distance of two arrays of one shape; complex values are pairs of reals."""
    whole = a.dtype.kind in "iub" and b.dtype.kind in "iub"
    exact = (b.astype(np.int64) - a.astype(np.int64)).ravel() if whole else None  # past 2**53 too
    one, two = _as_float(a), _as_float(b)
    both = np.isfinite(one) & np.isfinite(two)
    misplaced = nans = 0
    if not both.all():
        nan = np.isnan(one) & np.isnan(two)
        nans = int(nan.sum())
        misplaced = int((~both & ~nan & (one != two)).sum())
        one, two = one[both], two[both]
    apart = two - one if exact is None else exact.astype(np.float64)
    return Distance(
        _size(apart), _size(one), _size(two), _cosine(one, two), misplaced, nans, "tensors"
    )


def measure_sketches(
    sketches: tuple[NDArray[np.float32], NDArray[np.float32]],
    sizes: tuple[Size, Size],
    not_finite: tuple[tuple[int, int], tuple[int, int]],
) -> Distance:
    """The distance of two tensors as their sketches tell it.

    The norm of the difference of the sketches estimates that of the difference. What the figures prove is
    at least as good: the largest magnitudes differ by no more than the tensors do.

    Args:
        sketches: of A and of B.
        sizes: of A and of B, from their figures.
        not_finite: how many NaN and how many Inf A has, and B.
    """
    a, b = sizes
    apart = sketches[1].astype(np.float64) - sketches[0].astype(np.float64)
    norm = float(np.linalg.norm(apart))
    if a.largest is not None and b.largest is not None:
        norm = max(norm, abs(a.largest - b.largest))
    (nans, infs), (other_nans, other_infs) = not_finite
    rms = norm / math.sqrt(a.values) if a.values else 0.0
    finite = a.values - max(nans + infs, other_nans + other_infs)
    return Distance(
        Size(rms, None, None, finite),
        a,
        b,
        _cosine(sketches[0].astype(np.float64), sketches[1].astype(np.float64)),
        abs(nans - other_nans) + abs(infs - other_infs),
        min(nans, other_nans) + min(infs, other_infs),
        "sketches",
    )


def _over(distance: float, tolerated: float) -> float:
    if tolerated:
        return distance / tolerated
    return 0.0 if distance <= 0 else math.inf


def _as_float(values: NDArray[np.generic]) -> NDArray[np.float64]:
    if values.dtype.kind == "c":
        values = np.stack([values.real, values.imag], -1)
    with np.errstate(invalid="ignore"):  # a NaN of the kind that signals, of which numpy would warn
        return values.astype(np.float64).ravel()


def _size(values: NDArray[np.float64]) -> Size:
    if not values.size:
        return Size(0.0, 0.0, 0.0, 0)
    magnitudes = np.abs(values)
    largest = float(magnitudes.max())
    scaled = magnitudes / largest if largest else magnitudes  # squares neither vanish nor overflow
    rms = largest * math.sqrt(_dot(scaled, scaled) / values.size)
    return Size(rms, largest, float(magnitudes.mean()), values.size)


def _cosine(one: NDArray[np.float64], two: NDArray[np.float64]) -> float | None:
    norms = [float(np.abs(values).max(initial=0.0)) for values in (one, two)]
    if not all(norms):
        return None
    one, two = one / norms[0], two / norms[1]
    product = _dot(one, two) / math.sqrt(_dot(one, one) * _dot(two, two))
    return max(-1.0, min(1.0, product))


def _dot(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Not ``@``: the threads of BLAS cost 40 ms a call where other programs use the cores."""
    return float((one * two).sum())
