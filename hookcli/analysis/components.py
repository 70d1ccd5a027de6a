"""Find the principal components of features, which are read in blocks to save memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hookcli.analysis.features import check_finite
from hookcli.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features

_ROWS = 4096  # rows of features that are copied at a time
_SMALL = 512  # up to this many features, all eigenvalues are computed, in 0.1 s
_SPARE, _STEPS, _CHECKED = 5, 40, 5  # vectors beside the wanted ones; steps; steps between checks
_EXACT = 1e-9  # the largest error of the vectors, as a share of the largest eigenvalue
_NOTHING = 1e-12  # a variance below this share of the squared mean is rounding error


@dataclass(frozen=True, slots=True)
class Components:
    mean: NDArray[np.float64]  # of the features, (C,)
    # directions (K, C) of length 1, by falling variance; the entry of largest magnitude is positive
    axes: NDArray[np.float64]
    spread: NDArray[np.float64]  # the standard deviation of the features along each, (K,)
    explained: NDArray[np.float64]  # the share of the variance along each, (K,)

    def project(self, features: Features) -> NDArray[np.float64]:
        """Project features (rows, C) on the K components; return their coordinates (rows, K)."""
        return np.concatenate([(part - self.mean) @ self.axes.T for part in split_rows(features)])


def split_rows(features: Features) -> Iterator[Features]:
    """Yield features (rows, C) in blocks of up to 4096 rows, so that float64 copies are small."""
    yield from (features[start : start + _ROWS] for start in range(0, max(1, len(features)), _ROWS))


def find_components(blocks: Iterable[Features], count: int) -> Components:
    """Return the first ``count`` principal components of the rows of all ``blocks`` (rows, C)."""
    # The result is that of a singular value decomposition of the centered features, apart from
    # rounding. Rows are kept up to the number of features; then, their covariance is summed.
    rows, shift, total = 0, np.zeros(0), np.zeros(0)
    kept: list[NDArray[np.float64]] = []
    products: NDArray[np.float64] | None = None
    for block in blocks:
        if not len(block):
            continue
        if not rows:  # values near zero keep more digits
            shift = block.mean(0, dtype=np.float64)
            total = np.zeros_like(shift)
        shifted = block - shift
        rows += len(shifted)
        total += shifted.sum(0)
        if products is not None:
            products += shifted.T @ shifted
            continue
        kept.append(shifted)
        if rows > len(shift):
            products = sum((part.T @ part for part in kept), np.zeros((len(shift),) * 2))
            kept.clear()
    if rows <= count or len(shift) < count:
        raise RequestError(
            f"{count} components need more than {count} rows and as many features, "
            f"and there are {rows} rows of {len(shift)} features",
            "use more images, or other `layers`",
        )
    check_finite(total)
    mean = total / rows
    if products is None:
        stacked = np.concatenate(kept) - mean
        whole = float(np.square(stacked).sum()) / rows
        variances, vectors = _find_leading(stacked @ stacked.T / rows, count)
        axes = vectors.T @ stacked
    else:
        for row, own in enumerate(mean):
            products[row] = products[row] / rows - own * mean
        whole = float(np.trace(products))
        variances, directions = _find_leading(products, count)
        axes = directions.T
    if not whole > _NOTHING * float(np.square(shift).sum()):
        raise RequestError("the features are the same everywhere", "choose other `layers`")
    lengths = np.linalg.norm(axes, axis=1, keepdims=True)
    axes = axes / np.where(lengths > 0, lengths, 1)
    largest = np.take_along_axis(axes, np.abs(axes).argmax(1)[:, None], 1)
    spread = np.sqrt(variances.clip(min=0))
    return Components(shift + mean, axes * np.sign(largest), spread, spread**2 / whole)


def _find_leading(
    matrix: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # All eigenvalues of a large matrix would take half a minute. The largest ones are found in a
    # block Krylov space (Musco and Musco 2015, Randomized block Krylov methods).
    if len(matrix) > _SMALL:
        block = np.random.default_rng(0).normal(size=(len(matrix), count + _SPARE))
        basis = np.zeros((len(matrix), 0))
        for step in range(_STEPS):
            for _ in range(2):  # once leaves rounding errors
                block = block - basis @ (basis.T @ block)
                block = np.linalg.qr(block)[0]
            basis = np.hstack([basis, block])
            block = matrix @ block
            if step % _CHECKED == _CHECKED - 1:
                values, inner = np.linalg.eigh(basis.T @ (matrix @ basis))
                values, vectors = values[::-1][:count], basis @ inner[:, ::-1][:, :count]
                if np.linalg.norm(matrix @ vectors - vectors * values) <= _EXACT * abs(values[0]):
                    return values, vectors
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:count], vectors[:, ::-1][:, :count]
