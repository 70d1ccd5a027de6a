"""Reduce two tensors, A and B, of one call to feature maps or bars that show how they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.records.pictures import MOST_BARS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hookcli.records.layouts import Layout

    Values = NDArray[np.float64]

TILE = 112  # the longest side of a drawn feature map, in pixels
TOP = 12  # the largest number of channels that are drawn
_COMPLEX_NOTE = (
    "complex numbers: A, B and B - A are drawn as magnitudes, which are never below zero"
)


@dataclass(frozen=True, slots=True)
class ComparedMaps:
    """The values to draw for one call and one image, from two tensors A and B.

    Maps are (K, h, w) of K channels, or n bars (1, 1, n); figures have one value per channel, (K,),
    or one for all bars, (1,). If A or B is complex, all values are magnitudes. A drawn value that
    stands for several is their mean or, in ``difference``, the one of the largest magnitude.
    """

    a: Values
    b: Values
    difference: Values  # maps or bars of B - A
    low: Values  # the smallest finite value of A and B
    high: Values  # the largest
    largest: Values  # the largest finite magnitude of B - A
    broken: NDArray[np.int64]  # the number of values of B - A that are NaN or Inf
    channels: NDArray[np.int64]  # numbers, counted from 0; empty for bars
    notes: tuple[str, ...]  # how much differs, and what the picture leaves out or reduces

    @property
    def is_flat(self) -> bool:
        """Whether the values are drawn as bars instead of feature maps."""
        return not len(self.channels)


def compare_maps(a: NDArray[np.generic], b: NDArray[np.generic], layout: Layout) -> ComparedMaps:
    """Return the maps, or bars per channel, to draw for two differing tensors (1, …) of a call."""
    is_complex = np.iscomplexobj(a) or np.iscomplexobj(b)
    with np.errstate(invalid="ignore", over="ignore"):
        one, two = (each.astype(np.complex128 if is_complex else np.float64) for each in (a, b))
        difference = np.where(a == b, 0, two - one)  # equal infinities do not differ
        values: Any = tuple(np.abs(each) if is_complex else each for each in (one, two, difference))
    compared = _take_drawn(values, layout)
    if is_complex:
        return replace(compared, notes=(*compared.notes, _COMPLEX_NOTE))
    return compared


def _take_drawn(values: tuple[Values, ...], layout: Layout) -> ComparedMaps:
    one, two, difference = values
    if not layout.is_spatial:
        return _take_bars(values, layout.channel_axis)
    notes = []
    if (axis := layout.frame_axis) is not None:
        frame = _worst(difference, axis)
        notes.append(f"the frame that differs most, {frame + 1} of {difference.shape[axis]}")
        one, two, difference = (np.take(each, frame, axis) for each in (one, two, difference))
    others = tuple(_other_tokens(each, layout) for each in (one, two, difference))
    if others[2].size and (token_difference := _largest(others[2].reshape(1, -1))[0]):
        tokens = _tokens_differ(others[2], ", which")
        notes.append(f"not shown: {tokens} by up to {token_difference:.3g}")
    maps = tuple(_as_maps(each, layout) for each in (one, two, difference))
    scores = _scores(maps[2].reshape(len(maps[2]), -1))
    if others[2].size and not scores.any():
        return _take_bars(others, layout.channel_axis, tokens=_tokens_differ(others[2]))
    return _take_maps(maps, scores, notes)


def _take_maps(maps: tuple[Values, ...], scores: Values, notes: list[str]) -> ComparedMaps:
    """Take the channels that differ most; ``maps`` are A, B and B - A (C, h, w), scores (C,)."""
    differing = int((scores > 0).sum())
    channels = np.argsort(-scores, kind="stable")[: min(TOP, differing)]
    shown = f"; the {TOP} that differ most" if differing > TOP else ""
    count = (
        f"all {len(scores):,}" if differing == len(scores) else f"{differing:,} of {len(scores):,}"
    )
    notes = [f"{count} channels differ{shown}", *notes]
    one, two, difference = (each[channels] for each in maps)
    both = np.concatenate([one, two], 2).reshape(len(channels), -1)
    low, high = _finite_range(both)
    flat = difference.reshape(len(channels), -1)
    factor = max(1, -(-max(difference.shape[1:]) // TILE))
    if factor > 1:
        notes.append(
            f"maps of {difference.shape[1]}x{difference.shape[2]}: a pixel is the mean of "
            f"{factor}x{factor} values, and in B - A the largest of them"
        )
    return ComparedMaps(
        _shrink(one, factor),
        _shrink(two, factor),
        _shrink_to_largest(difference, factor),
        low=low,
        high=high,
        largest=_largest(flat),
        broken=(~np.isfinite(flat)).sum(1),
        channels=channels,
        notes=tuple(notes),
    )


def _take_bars(values: tuple[Values, ...], axis: int | None, tokens: str = "") -> ComparedMaps:
    """Return one bar per channel or, if ``axis`` is None, one per value, at most ``MOST_BARS``."""
    # ``tokens`` says in words which tokens ``values`` has, if it has only some of them.
    if axis is not None:
        values = tuple(np.moveaxis(each, axis, 0) for each in values)
    total = values[2].size
    run = 1 if axis is None else total // len(values[2])
    noun = "channel" if run > 1 else "value"
    count = total // run
    run *= max(1, -(-count // MOST_BARS))
    one, two, difference = (each.reshape(1, 1, -1) for each in values)
    starts = np.arange(0, total, run)
    one, two = _means(one, starts), _means(two, starts)
    low, high = _finite_range(np.concatenate([one, two], 2)[0])
    flat = difference[0]
    scores = _scores(flat.reshape(count, -1))
    differing = f"{int((scores > 0).sum()):,} of {count:,} {noun}s"
    most = f"the most in {noun} {int(np.argmax(scores))}, counted from 0"
    subject = f"only {tokens}: in {differing}" if tokens else f"{differing} differ"
    return ComparedMaps(
        one,
        two,
        _extremes(difference, starts, 2),
        low=low,
        high=high,
        largest=_largest(flat),
        broken=(~np.isfinite(flat)).sum(1),
        channels=np.zeros(0, np.int64),
        notes=(f"{subject}, {most}", _bars_note(count, total, run)),
    )


def _bars_note(count: int, total: int, run: int) -> str:
    if run == 1:
        return "no spatial form: one bar per value"
    if run * count == total:
        return (
            "no spatial form: a bar is the mean of a channel, and in B - A its largest difference"
        )
    return (
        f"no spatial form: a bar is the mean of {run:,} of {total:,} values in order, "
        "and in B - A the largest difference of them"
    )


def _worst(difference: Values, axis: int) -> int:
    rows = np.moveaxis(difference, axis, 0)
    return int(np.argmax(_scores(rows.reshape(len(rows), -1))))


def _as_maps(values: Values, layout: Layout) -> Values:
    """Return the feature maps (C, h, w) of a tensor (1, …), which must have no frame axis."""
    image: Values = values[0, layout.image_tokens]
    if layout.name.endswith("C"):
        image = np.moveaxis(image, -1, 0)
    return image.reshape(len(image), layout.height, layout.width)


def _other_tokens(values: Values, layout: Layout) -> Values:
    """Return the tokens (1, n, C) that cover no part of the image, such as a class token."""
    if layout.name != "NLC":
        return values[:, :0]
    return np.delete(values, layout.image_tokens, 1)


def _tokens_differ(others: Values, which: str = "") -> str:
    count = others.shape[1]
    if count == 1:
        return f"the class token{which} differs"
    return f"the {count} tokens that are no patches{which} differ"


def _scores(rows: Values) -> Values:
    """Return the L2 norm (C,) of each row of ``rows`` (C, n); Inf for a row with NaN or Inf."""
    with np.errstate(invalid="ignore", over="ignore"):
        scores: Values = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scores[~np.isfinite(scores)] = np.inf
    return scores


def _finite_range(rows: Values) -> tuple[Values, Values]:
    """Return the finite minimum and maximum of each row (K, n); 0 without one, never -0."""
    finite = np.isfinite(rows)
    low = np.where(finite, rows, np.inf).min(1, initial=np.inf)
    high = np.where(finite, rows, -np.inf).max(1, initial=-np.inf)
    return np.where(np.isfinite(low), low, 0) + 0.0, np.where(np.isfinite(high), high, 0) + 0.0


def _largest(rows: Values) -> Values:
    """Return the largest finite magnitude (K,) of each row (K, n); 0 without finite values."""
    largest: Values = np.where(np.isfinite(rows), np.abs(rows), 0).max(1, initial=0)
    return largest


def _shrink(maps: Values, factor: int) -> Values:
    """Return the mean of each square of maps (K, h, w); squares at the edges may be smaller."""
    rows, columns = (np.arange(0, length, factor) for length in maps.shape[1:])
    sums = np.add.reduceat(np.add.reduceat(maps, rows, 1), columns, 2)
    heights, widths = (np.minimum(factor, n - np.arange(0, n, factor)) for n in maps.shape[1:])
    means: Values = sums / (heights[:, None] * widths)
    return means


def _shrink_to_largest(maps: Values, factor: int) -> Values:
    rows, columns = (np.arange(0, length, factor) for length in maps.shape[1:])
    return _extremes(_extremes(maps, rows, 1), columns, 2)


def _extremes(values: Values, starts: NDArray[np.int64], axis: int) -> Values:
    """Split at ``starts``; return each part's value of largest magnitude, or NaN if it has one."""
    low = np.minimum.reduceat(values, starts, axis)
    high = np.maximum.reduceat(values, starts, axis)
    return np.where(-low > high, low, high)


def _means(values: Values, starts: NDArray[np.int64]) -> Values:
    lengths = np.diff([*starts, values.shape[2]])
    with np.errstate(invalid="ignore"):
        return np.add.reduceat(values, starts, 2) / lengths
