"""Principal components of features that arrive in blocks, exact whatever their number.

hookcli adds up the covariance of the features, so memory depends on their width alone.
"""

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
_NOTHING = 1e-12  # the share of the squared mean below which a variance is rounding


@dataclass(frozen=True, slots=True)
class Components:
    """The first principal components of features.

    Attributes:
        mean: the mean of the features, (C,).
        axes: the directions of the components, (K, C), of length 1; the direction along which the
            features vary most comes first. In each direction, the entry with the largest magnitude
            is positive, which fixes the sign.
        spread: the standard deviation of the features along each direction, (K,).
        explained: the share of the variance along each direction, (K,).
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    spread: NDArray[np.float64]
    explained: NDArray[np.float64]

    def project(self, features: Features) -> NDArray[np.float64]:
        """Return the coordinates of features (rows, C) along the directions, (rows, K)."""
        return np.concatenate([(part - self.mean) @ self.axes.T for part in split_rows(features)])


def split_rows(features: Features) -> Iterator[Features]:
    """Yield the rows of features in blocks, whose copies in double precision need little memory."""
    for start in range(0, max(1, len(features)), _ROWS):
        yield features[start : start + _ROWS]


def find_components(blocks: Iterable[Features], count: int) -> Components:
    """Return the first components of features.

    The result equals that of a singular value decomposition of the stacked features without their
    mean, apart from rounding.

    Args:
        blocks: features (rows, C), which may arrive in any number of blocks.
        count: the number of components.

    Raises:
        RequestError: there are too few rows or columns, or the features are constant, NaN or Inf.
    """
    rows, shift = 0, np.zeros(0)
    total, products = np.zeros(0), np.zeros((0, 0))
    for block in blocks:
        if not len(block):
            continue
        if not rows:  # values near zero keep more digits
            shift = block.mean(0, dtype=np.float64)
            total, products = np.zeros_like(shift), np.zeros((len(shift), len(shift)))
        shifted = block - shift
        rows += len(shifted)
        total += shifted.sum(0)
        products += shifted.T @ shifted
    if rows <= count or len(shift) < count:
        raise RequestError(
            f"{count} components need more than {count} rows and as many features, "
            f"and there are {rows} rows of {len(shift)} features",
            "use more images, or other `layers`",
        )
    check_finite(total)
    mean = total / rows
    covariance = products / rows - np.outer(mean, mean)
    variances, directions = np.linalg.eigh(covariance)
    whole = float(variances.clip(min=0).sum())
    if not whole > _NOTHING * float(np.square(shift).sum()):
        raise RequestError("the features are the same everywhere", "choose other `layers`")
    axes = directions[:, ::-1][:, :count].T
    largest = np.take_along_axis(axes, np.abs(axes).argmax(1)[:, None], 1)
    spread = np.sqrt(variances[::-1][:count].clip(min=0))
    return Components(shift + mean, axes * np.sign(largest), spread, spread**2 / whole)
