"""Whether a tensor of B has the values of a tensor of A, with other axes or in another shape."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from hookcli.distance.metrics import measure_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAME = 0.01  # the largest relative L2 distance of tensors that are taken for the same
FAR = 0.1  # the largest of tensors that are similar
_MOST_AXES = 5


def is_same(a: NDArray[np.generic], b: NDArray[np.generic], most: float = SAME) -> bool:
    """Return whether B has the values of A in the same order, in any shape."""
    # ``most`` is the largest relative L2 distance of tensors that are taken for the same.
    return measure_flat(a, b) < most


def measure_flat(a: NDArray[np.generic], b: NDArray[np.generic]) -> float:
    """Return the relative L2 distance of two tensors in any shape; Inf if it is not known."""
    if a.size != b.size:
        return float("inf")
    distance = measure_arrays(a.reshape(-1), b.reshape(-1))
    return float("inf") if distance.misplaced else distance.rel_l2


def find_axes(a: NDArray[np.generic], b: NDArray[np.generic]) -> tuple[int, ...]:
    """Return the order in which B has the axes of A, so that ``a.transpose(order)`` is B."""
    # The order is empty if B is no transposed A, or if the values are no floats. Axes of length 1
    # stay in their places, if possible.
    if a.ndim != b.ndim or a.ndim > _MOST_AXES or sorted(a.shape) != sorted(b.shape):
        return ()
    if {a.dtype.kind, b.dtype.kind} != {"f"}:
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
    """Return the result of ``find_axes`` in words."""
    moved = [axis for place, axis in enumerate(order) if place != axis]
    if len(moved) == 2:
        return f"axes {min(moved)} and {max(moved)} are swapped"
    return f"B has the axes {', '.join(map(str, order))} of A"
