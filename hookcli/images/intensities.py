"""Scale values to the range 0 to 255, by default in the same way for all images; choose bands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image

from hookcli.images.style import COLOURS, NoRangeError, ReadStyle, UndecodableError, check_size
from hookcli.outside.parse import write_range
from hookcli.records.images import Intensities
from hookcli.records.text import count, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Rows: TypeAlias = Callable[[], Iterable[Array]]  # the values (H, W, C), some rows at a time

_ROWS = 1 << 20  # values that are scaled at once
_SAMPLED = 1 << 22  # values; the percentiles of a larger picture are those of evenly spaced values


@dataclass(frozen=True, slots=True)
class Samples:
    natural: tuple[float, float] | None  # black and white of every picture of this type
    is_white_zero: bool = False  # whether the smallest value is white
    view: str = ""  # the dtype, if the decoder takes it for another of the same size


def samples_of(kind: str, bits: int, *, is_white_zero: bool = False) -> Samples:
    """Return which values mean black and white in every picture of a dtype, if the dtype shows it.

    ``kind`` is numpy's letter for the dtype, and ``bits`` is the number of bits that values use.
    For example, unsigned integers (``u``) of 12 bits reach from 0 to 4095, and floats from 0 to 1.
    Signed integers, and those of more than 16 bits, show nothing. With ``is_white_zero``, 0 is
    white.
    """
    if kind in "bf":
        return Samples((0.0, 1.0), is_white_zero)
    is_natural = kind == "u" and bits <= 16
    return Samples((0.0, float((1 << bits) - 1)) if is_natural else None, is_white_zero)


class BandPicture:
    """Holds a picture of two, four or more bands: float32 ``values`` (H, W, C) from 0 to 255."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self.values = values
        self.height, self.width, self.bands = values.shape
        self.size = self.width, self.height

    def resize(self, size: tuple[int, int], resample: Image.Resampling) -> Array:
        bands = map(Image.fromarray, self.values.transpose(2, 0, 1))
        return np.stack([np.asarray(band.resize(size, resample)) for band in bands], -1)


def draw(
    values: Array, style: ReadStyle, samples: Samples | None = None
) -> tuple[Image.Image | BandPicture, Intensities | None]:
    """Return an array (H, W, C) as a picture, and the range of values that became 0 to 255.

    The range is None for uint8. ``samples`` has the values that mean black and white; if it is
    None, the dtype decides.
    """
    values = _choose_bands(values, style.bands)
    check_size(values.shape[1], values.shape[0], values.shape[2])
    samples = samples or samples_of(values.dtype.kind, 8 * values.dtype.itemsize)
    made, found = scale_rows(lambda: _split(values), values.shape, style, samples)
    if made.dtype == np.float32:
        return BandPicture(made), found
    return Image.fromarray(made if made.shape[2] > 1 else made[:, :, 0]).convert("RGB"), found


def scale_rows(
    rows: Rows, shape: tuple[int, ...], style: ReadStyle, samples: Samples
) -> tuple[Array, Intensities | None]:
    """Return values scaled to 0 to 255, and the range of values that became 0 to 255.

    Each call of ``rows`` yields all values, some rows at a time. The scaled values have the
    ``shape`` (H, W, C); they are uint8 for one or three bands, otherwise float32. The range is None
    if the values are uint8, which are not scaled.
    """
    is_seen = shape[2] in (1, COLOURS)
    made = np.empty(shape, np.uint8 if is_seen else np.float32)
    found, top = None, 0
    for values in rows():
        scaled: Array = values
        if values.dtype != np.uint8:
            found = found or _measure(rows, samples, style)
            scaled = np.subtract(values, found.low, dtype=np.float64)
            scaled *= 255
            scaled /= (found.high - found.low) or 1.0
            np.nan_to_num(scaled, copy=False, nan=255 * samples.is_white_zero, posinf=255, neginf=0)
            scaled = (scaled.round() if is_seen else scaled).clip(0, 255)
        made[top : top + len(values)] = 255 - scaled if samples.is_white_zero else scaled
        top += len(values)
    return made, found


def _measure(rows: Rows, samples: Samples, style: ReadStyle) -> Intensities:
    smallest, largest, nans, infinite = np.inf, -np.inf, 0, 0
    for values in rows():
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        odd = values.size - finite.size
        here = int(np.isnan(values).sum()) if odd else 0
        nans, infinite = nans + here, infinite + odd - here
        if finite.size:
            smallest, largest = min(smallest, finite.min()), max(largest, finite.max())
    smallest, largest = (float(v) if smallest <= largest else 0.0 for v in (smallest, largest))
    rule, ends = write_range(style.range), (smallest, largest)
    if isinstance(style.range, tuple):
        ends = style.range
    elif style.range.startswith("percent"):
        parts = np.concatenate([each.ravel() for each in rows()])
        parts = parts[:: -(-parts.size // _SAMPLED)]
        share = float(style.range.partition(":")[2])
        if (parts := parts[np.isfinite(parts)]).size:
            ends = (float(np.percentile(parts, share)), float(np.percentile(parts, 100 - share)))
    elif style.range == "full":
        natural, is_float = samples.natural, values.dtype.kind == "f"
        fits = natural and natural[0] <= smallest <= largest <= natural[1]
        rule, ends = ("full", natural) if natural and (fits or not is_float) else ("own", ends)
        if rule == "own" and not style.is_alone:
            raise NoRangeError(smallest, largest)
    low, high = ends
    clipped = infinite
    if smallest < low or largest > high:
        clipped = sum(int(((each < low) | (each > high)).sum()) for each in rows())
    return Intensities(low, high, smallest, largest, clipped, nans, rule)


def _split(values: Array) -> Iterator[Array]:
    step = max(1, _ROWS // max(1, values[:1].size))
    return (values[top : top + step] for top in range(0, len(values), step))


def _choose_bands(values: Array, bands: Sequence[int], axis: int = 2) -> Array:
    if max(bands, default=0) >= (there := values.shape[axis]):
        what = f"has {count(there, 'band')}, and no band {max(bands)} (counted from 0)"
        raise UndecodableError(what)
    return values.take(bands, axis) if bands else values


def _find_bands(shape: Sequence[int]) -> int:
    """Return which axis of an array has the bands: 0 for (C, H, W), or -1 for (H, W, C)."""
    # Two equal lengths are sides of a square. Otherwise, the shorter end axis has the bands.
    first, middle, last = shape
    if first == last:
        raise UndecodableError(f"is {shape_text(shape)}: the bands may be the first or last axis")
    if middle in (first, last):
        return 0 if middle == last else -1
    return 0 if first < last else -1


def put_bands_last(values: Array) -> Array:
    if values.ndim == 2:
        return values[:, :, None]
    return np.moveaxis(values, _find_bands(values.shape), -1)


def put_bands_first(pixels: Array, channels: int | None, bands: Sequence[int]) -> Array:
    """Return pixels as (C, H, W), with only the bands in ``bands``; an empty ``bands`` keeps all.

    ``channels`` is the number of bands in ``pixels``; None if this is not known.
    """
    is_last = channels is not None and pixels.shape[0] != channels == pixels.shape[-1]
    axis = _find_bands(pixels.shape) if bands else (-1 if is_last else 0)
    return _choose_bands(np.ascontiguousarray(np.moveaxis(pixels, axis, 0)), bands, 0)
