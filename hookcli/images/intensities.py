"""The rule of intensities: how the values of a picture become black, white, and what is between.

Values of 8 bits stay as they are. Values of more bits are scaled from a range, which is the same
for all pictures of a run, unless the user asks for the range of each picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hookcli.images.undecodable import NoRangeError
from hookcli.outside.parse import write_range
from hookcli.records.images import Intensities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.integer | np.floating]
    Rows: TypeAlias = Callable[[], Iterable[Numbers]]  # the values, some rows at a time

COLOURS = 3  # the bands of a picture for people; a grey picture is drawn with three equal ones
_SAMPLED = 1 << 22  # values; the percentiles of a larger picture are those of evenly spaced values


@dataclass(frozen=True, slots=True)
class ReadStyle:
    """How to read picture files.

    Attributes:
        range: the range of values, as in ``config.ImageRequest``.
        bands: the bands to use, counted from 0; empty for all.
        page: the page to read, or ``all``; None for the first.
        is_alone: whether a picture without a natural range is drawn from its smallest to its
            largest value; otherwise, such a picture is refused.
    """

    range: str | tuple[float, float] = "full"
    bands: tuple[int, ...] = ()
    page: int | str | None = None
    is_alone: bool = True


@dataclass(frozen=True, slots=True)
class Samples:
    """The meaning of the values in a picture of more than 8 bits.

    Attributes:
        natural: the values that mean black and white, for all pictures of this type; None if the
            type does not tell. For floats, the range holds only if no value lies outside.
        is_float: whether the values are floats.
        is_white_zero: whether the smallest value is white and the largest value black.
        view: the dtype of the values, if a decoder takes them for another dtype of the same size.
    """

    natural: tuple[float, float] | None
    is_float: bool = False
    is_white_zero: bool = False
    view: str = ""


def samples_of(kind: str, bits: int, *, is_white_zero: bool = False) -> Samples:
    """Return the meaning of values of a type: ``kind`` is numpy's letter, such as ``u``."""
    natural = None
    if kind in "bf":
        natural = (0.0, 1.0)
    elif kind == "u" and bits <= 16:
        natural = (0.0, float((1 << bits) - 1))
    return Samples(natural, kind == "f", is_white_zero)


def measure(rows: Rows, samples: Samples, style: ReadStyle) -> Intensities:
    """Return the range of a picture by the rule of ``style``, and what lies outside the range.

    Raises:
        NoRangeError: the values have no natural range, and the picture is not alone.
    """
    import numpy as np  # takes 0.1 s, and only such pictures need it

    smallest, largest, nans, odd = np.inf, -np.inf, 0, 0
    for numbers in rows():
        finite = numbers
        if samples.is_float:
            finite = numbers[np.isfinite(numbers)]
            nans += int(np.isnan(numbers).sum())
            odd += numbers.size - finite.size
        if finite.size:
            smallest, largest = (
                min(smallest, float(finite.min())),
                max(largest, float(finite.max())),
            )
    if smallest > largest:  # there is no finite number
        smallest = largest = 0.0
    low, high, rule = smallest, largest, write_range(style.range)
    if isinstance(style.range, tuple):
        low, high = style.range
    elif style.range.startswith("percent:"):
        share = float(style.range.removeprefix("percent:"))
        low, high = _find_percentiles(rows, (share, 100 - share), samples)
    elif style.range == "full":
        natural = samples.natural
        if natural is None or (
            samples.is_float and not natural[0] <= smallest <= largest <= natural[1]
        ):
            rule = "own"
        else:
            low, high = natural
        if rule == "own" and not style.is_alone:
            raise NoRangeError(smallest, largest)
    clipped = odd - nans
    if smallest < low or largest > high:
        clipped = sum(int(((each < low) | (each > high)).sum()) for each in rows())
    return Intensities(low, high, smallest, largest, clipped, nans, rule)


def _find_percentiles(
    rows: Rows, shares: tuple[float, float], samples: Samples
) -> tuple[float, float]:
    """Return two percentiles of the finite values, (0, 0) if there are none."""
    import numpy as np

    parts = [each.ravel() for each in rows()]
    step = -(-sum(len(part) for part in parts) // _SAMPLED)
    values = np.concatenate(parts)[::step]
    if samples.is_float:
        values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 0.0
    low, high = np.percentile(values, shares)
    return float(low), float(high)


def scale(numbers: Numbers, found: Intensities, samples: Samples) -> NDArray[np.float64]:
    """Return values on the scale from 0 (black) to 255 (white), not rounded."""
    scaled = _scale(numbers, found, samples)
    return 255 - scaled if samples.is_white_zero else scaled


def to_bytes(numbers: Numbers, found: Intensities, samples: Samples) -> NDArray[np.uint8]:
    """Return values as bytes from 0 (black) to 255 (white)."""
    import numpy as np

    scaled = _scale(numbers, found, samples).round().astype(np.uint8)
    return 255 - scaled if samples.is_white_zero else scaled


def _scale(numbers: Numbers, found: Intensities, samples: Samples) -> NDArray[np.float64]:
    """Return values on the scale from 0 to 255, as if the smallest value were black."""
    import numpy as np

    scaled: NDArray[np.float64] = np.subtract(numbers, found.low, dtype=np.float64)
    scaled *= 255 / ((found.high - found.low) or 1.0)
    black = 255 if samples.is_white_zero else 0
    np.nan_to_num(scaled, copy=False, nan=black, posinf=255, neginf=0)
    scaled.clip(0, 255, out=scaled)
    return scaled
