"""Draw activations A and B on one scale, and B - A: the channels that differ most, or bars."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hookcli.config import EMBER
from hookcli.records.pictures import LEVELS, MOST_BARS, NOT_FINITE
from hookcli.render.draw.canvas import (
    BACKGROUND,
    MARGIN,
    NOTE_SIZE,
    TIDE,
    Canvas,
    fill_bars,
    heading_height,
    load_palette,
    measure_text,
    new_canvas,
    to_png,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.config import Theme
    from hookcli.records.layouts import Layout
    from hookcli.render.draw.canvas import Pixels

    Floats = NDArray[np.float64]


TILE = 112  # the longest side of a drawn feature map, in pixels
TOP = 12  # the largest number of channels that are drawn
_COMPLEX_NOTE = (
    "complex numbers: A, B and B - A are drawn as magnitudes, which are never below zero"
)
_HALF = 60  # levels of ``tide`` on either side of zero
# Levels of ``ember``. Two of the LEVELS + 1 indices are reserved for values that are not finite.
_EMBERS = LEVELS - 1 - (2 * _HALF + 1)
_ZERO = _EMBERS + _HALF
_NOT_FINITE, _NOT_FINITE_DIFFERENCE = LEVELS - 1, LEVELS
_HEADS = ("A", "B", "B - A")
_COLUMNS = 2  # channels in a row; a page would scale a wider picture down, and its labels too
_GAP, _BETWEEN, _LABEL = 3, 20, 16
_BAND, _LOWEST = 96, 24
_MAPS_NOTES = (
    "A and B dark to light: a channel's smallest to its largest in both",
    "B - A blue to orange: minus to plus its largest difference, grey is none",
)
_SIGNED_NOTES = (
    "blue to orange: minus to plus a channel's largest magnitude in both,",
    "and in B - A its largest difference; grey is zero",
)
_BARS_NOTES = (
    "A and B from zero on one scale",
    "B - A from its own zero, orange above it and blue below",
)
_DARKEST, _LIGHTEST = 44, 82  # the range of ``ember`` levels for bars: visible in both themes


@dataclass(frozen=True, slots=True)
class ComparedMaps:
    """Holds the values that a picture of A and B shows: K maps (K, h, w), or n bars (1, 1, n).

    A pixel or bar may stand for several values: it is their mean or, in ``difference``, the value
    of largest magnitude. ``low``, ``high``, ``largest`` and ``broken`` have one value for each
    channel, (K,), or one for all bars, (1,). For complex tensors, ``a``, ``b`` and ``difference``
    are magnitudes.
    """

    a: Floats
    b: Floats
    difference: Floats  # maps or bars of B - A
    low: Floats  # the smallest finite value of A and B
    high: Floats  # the largest finite value of A and B
    largest: Floats  # the largest finite magnitude of B - A
    broken: NDArray[np.int64]  # the number of values of B - A that are NaN or Inf
    channels: NDArray[np.int64]  # numbers, counted from 0; empty for bars
    notes: tuple[str, ...]  # how much differs, and what the picture leaves out or reduces

    @property
    def is_flat(self) -> bool:
        return not len(self.channels)


def compare_maps(a: NDArray[np.generic], b: NDArray[np.generic], layout: Layout) -> ComparedMaps:
    """Return what a picture of a call's tensors A and B (1, …) shows: the maps that differ most.

    It shows bars if the layout has no maps, or if all differences are in tokens that cover no part
    of the image, such as a class token.
    """
    is_complex = np.iscomplexobj(a) or np.iscomplexobj(b)
    with np.errstate(invalid="ignore", over="ignore"):
        one, two = (each.astype(np.complex128 if is_complex else np.float64) for each in (a, b))
        difference = np.where(a == b, 0, two - one)  # equal infinities do not differ
        values: Any = tuple(np.abs(each) if is_complex else each for each in (one, two, difference))
    compared = _take_drawn(values, layout)
    if is_complex:
        return replace(compared, notes=(*compared.notes, _COMPLEX_NOTE))
    return compared


def _take_drawn(values: tuple[Floats, ...], layout: Layout) -> ComparedMaps:
    one, two, difference = values
    if not layout.is_spatial:
        return _take_bars(values, layout.channel_axis)
    notes = []
    if (axis := layout.frame_axis) is not None:
        frames = np.moveaxis(difference, axis, 0)
        frame = int(np.argmax(_scores(frames.reshape(len(frames), -1))))
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


def _take_maps(maps: tuple[Floats, ...], scores: Floats, notes: list[str]) -> ComparedMaps:
    """Return the maps of the channels with the highest ``scores`` (C,), reduced to tile size."""
    # ``maps`` has those of A, B and B - A, (C, h, w). Channels with the score 0 are left out.
    differing = int((scores > 0).sum())
    channels = np.argsort(-scores, kind="stable")[: min(TOP, differing)]
    shown = f"; the {TOP} that differ most" if differing > TOP else ""
    total = len(scores)
    count = f"all {total:,}" if differing == total else f"{differing:,} of {total:,}"
    notes = [f"{count} channels differ{shown}", *notes]
    one, two, difference = (each[channels] for each in maps)
    both = np.concatenate([one, two], 2).reshape(len(channels), -1)
    factor = max(1, -(-max(difference.shape[1:]) // TILE))
    rows, columns = (np.arange(0, length, factor) for length in difference.shape[1:])
    if factor > 1:
        maps_of = f"maps of {difference.shape[1]}x{difference.shape[2]}: a pixel is the mean of"
        notes.append(f"{maps_of} {factor}x{factor} values, and in B - A the largest of them")
    flat = difference.reshape(len(channels), -1)
    ways = ((one, _means), (two, _means), (difference, _extremes))
    drawn = tuple(reduce(reduce(each, rows, 1), columns, 2) for each, reduce in ways)
    return _describe(drawn, both, flat, channels, notes)


def _take_bars(values: tuple[Floats, ...], axis: int | None, tokens: str = "") -> ComparedMaps:
    """Return bars of A, B and B - A, which are the three arrays in ``values``."""
    # There is a bar for each index of ``axis`` or, without one, for each value; a bar may stand for
    # several neighbours. ``tokens`` says in words which tokens differ.
    if axis is not None:
        values = tuple(np.moveaxis(each, axis, 0) for each in values)
    total = values[2].size
    run = 1 if axis is None else total // len(values[2])
    noun = "channel" if run > 1 else "value"
    count = total // run
    run *= max(1, -(-count // MOST_BARS))
    one, two, difference = (each.reshape(1, 1, -1) for each in values)
    starts = np.arange(0, total, run)
    one, two = _means(one, starts, 2), _means(two, starts, 2)
    flat = difference[0]
    scores = _scores(flat.reshape(count, -1))
    differing = f"{int((scores > 0).sum()):,} of {count:,} {noun}s"
    most = f"the most in {noun} {int(np.argmax(scores))}, counted from 0"
    subject = f"only {tokens}: in {differing}" if tokens else f"{differing} differ"
    notes = [f"{subject}, {most}", _bars_note(count, total, run)]
    both, none = np.concatenate([one, two], 2)[0], np.zeros(0, np.int64)
    return _describe((one, two, _extremes(difference, starts, 2)), both, flat, none, notes)


def _describe(
    drawn: tuple[Floats, ...],  # of A, B and B - A
    both: Floats,  # (K, n): a row has a channel's values of A and B; bars have a single row
    flat: Floats,  # (K, m): a row has the channel's values of B - A
    channels: NDArray[np.int64],
    notes: list[str],
) -> ComparedMaps:
    low, high, broken = *_finite_range(both), (~np.isfinite(flat)).sum(1)
    a, b, difference = drawn
    return ComparedMaps(a, b, difference, low, high, _largest(flat), broken, channels, tuple(notes))


def _bars_note(count: int, total: int, run: int) -> str:
    if run == 1:
        return "no spatial form: one bar per value"
    mean = "no spatial form: a bar is the mean of"
    if run * count == total:
        return f"{mean} a channel, and in B - A its largest difference"
    most = "and in B - A the largest difference of them"
    return f"{mean} {run:,} of {total:,} values in order, {most}"


def _as_maps(values: Floats, layout: Layout) -> Floats:
    image: Floats = values[0, layout.image_tokens]
    if layout.name.endswith("C"):
        image = np.moveaxis(image, -1, 0)
    return image.reshape(len(image), layout.height, layout.width)


def _other_tokens(values: Floats, layout: Layout) -> Floats:
    """Return the tokens (1, n, C) that cover no part of the image, such as a class token."""
    if layout.name != "NLC":
        return values[:, :0]
    return np.delete(values, layout.image_tokens, 1)


def _tokens_differ(others: Floats, which: str = "") -> str:
    count = others.shape[1]
    if count == 1:
        return f"the class token{which} differs"
    return f"the {count} tokens that are no patches{which} differ"


def _scores(rows: Floats) -> Floats:
    """Return the L2 norm (C,) of each row of ``rows`` (C, n); Inf for a row with NaN or Inf."""
    with np.errstate(invalid="ignore", over="ignore"):
        scores: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scores[~np.isfinite(scores)] = np.inf
    return scores


def _finite_range(rows: Floats) -> tuple[Floats, Floats]:
    """Return the least and largest finite value (K,) of each row (K, n); 0 if none is finite."""
    finite = np.isfinite(rows)
    low = np.where(finite, rows, np.inf).min(1, initial=np.inf)
    high = np.where(finite, rows, -np.inf).max(1, initial=-np.inf)
    return np.where(np.isfinite(low), low, 0) + 0.0, np.where(np.isfinite(high), high, 0) + 0.0


def _largest(rows: Floats) -> Floats:
    """Return the largest finite magnitude (K,) of each row (K, n); 0 if no value is finite."""
    largest: Floats = np.where(np.isfinite(rows), np.abs(rows), 0).max(1, initial=0)
    return largest


def _extremes(values: Floats, starts: NDArray[np.int64], axis: int) -> Floats:
    """Cut ``axis`` at ``starts``; return the value of largest magnitude (or NaN) of each part."""
    low = np.minimum.reduceat(values, starts, axis)
    high = np.maximum.reduceat(values, starts, axis)
    return np.where(-low > high, low, high)


def _means(values: Floats, starts: NDArray[np.int64], axis: int) -> Floats:
    lengths = np.diff([*starts, values.shape[axis]])
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(values, starts, axis)
    means: Floats = sums / (lengths if axis == 2 else lengths[:, None])
    return means


def draw_compared_maps(
    compared: ComparedMaps, heading: Sequence[str], *, signed: bool = False, theme: Theme = "dark"
) -> tuple[bytes, tuple[int, int]]:
    canvas = (_draw_bars if compared.is_flat else _draw_maps)(compared, heading, signed=signed)
    return to_png(canvas.to_image(list(_palette(theme)))), canvas.size


def list_labels(compared: ComparedMaps) -> list[str]:
    if compared.is_flat:
        low, high = _bar_range(compared)
        largest = float(compared.largest[0])
        difference = _difference_text(largest, int(compared.broken[0]))
        of_difference = f"{0 - largest:.3g} to {largest:.3g},  {difference}"  # 0 must not become -0
        ranges = (*[f"{low:.3g} to {high:.3g}"] * 2, of_difference)
        return [f"{head}   {each}" for head, each in zip(_HEADS, ranges, strict=True)]
    columns = (compared.channels, compared.low, compared.high, compared.largest, compared.broken)
    return [
        f"channel {channel}:  {low:.3g} to {high:.3g},  {_difference_text(largest, broken)}"
        for channel, low, high, largest, broken in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _bar_range(compared: ComparedMaps) -> tuple[float, float]:
    return min(0.0, float(compared.low[0])), max(0.0, float(compared.high[0]))


def _difference_text(largest: float, broken: int) -> str:
    broken_text = f"not finite in {broken:,} place{'' if broken == 1 else 's'}"
    if broken:
        return f"{broken_text}, else up to {largest:.3g} apart" if largest else broken_text
    return f"up to {largest:.3g} apart"


def _draw_maps(compared: ComparedMaps, heading: Sequence[str], *, signed: bool) -> Canvas:
    labels = list_labels(compared)
    factor = max(1, TILE // max(compared.a.shape[1:]))
    high = max(1, _LOWEST // (factor * compared.a.shape[1]))  # maps of sequences are one value high
    height, width = factor * high * compared.a.shape[1], factor * compared.a.shape[2]
    three = 3 * (width + _GAP) - _GAP
    widest = max(three, *(measure_text(label, NOTE_SIZE) for label in labels))
    step_x, step_y = widest + _BETWEEN, height + 2 * _LABEL + 6
    rows = -(-len(labels) // _COLUMNS)
    heading = [*heading, *(_SIGNED_NOTES if signed else _MAPS_NOTES)]
    canvas = new_canvas(heading, min(_COLUMNS, len(labels)) * step_x - _BETWEEN, rows * step_y)
    top = heading_height(heading)
    drawn = _to_levels(compared, signed=signed)
    maps = [levels.repeat(factor * high, 1).repeat(factor, 2) for levels in drawn]
    for index, label in enumerate(labels):
        x, y = MARGIN + index % _COLUMNS * step_x, top + index // _COLUMNS * step_y
        write_text(canvas, label, (x, y), size=NOTE_SIZE, width=widest)
        for column, (head, levels) in enumerate(zip(_HEADS, maps, strict=True)):
            left, upper = x + column * (width + _GAP), y + 2 * _LABEL
            write_text(canvas, head, (left, y + _LABEL), size=NOTE_SIZE, width=width)
            canvas.pixels[upper : upper + height, left : left + width] = levels[index]
    return canvas


def _draw_bars(compared: ComparedMaps, heading: Sequence[str], *, signed: bool) -> Canvas:
    both, largest = _bar_range(compared), float(compared.largest[0])
    thick = max(1, min(24, 1024 // max(1, compared.a.shape[2])))
    heading = [*heading, *_BARS_NOTES]
    step = _BAND + _LABEL + 10
    canvas = new_canvas(heading, compared.a.shape[2] * thick, 3 * step)
    width = canvas.size[0] - 2 * MARGIN
    labels, scales = list_labels(compared), (both, both, (-largest, largest))
    values = (compared.a[0], compared.b[0], compared.difference[0])
    for index, levels in enumerate(_to_levels(compared, signed=signed)):
        y = heading_height(heading) + index * step
        write_text(canvas, labels[index], (MARGIN, y), size=NOTE_SIZE, width=width)
        low, high = scales[index]
        bars = fill_bars(values[index][0], levels[0, 0], low, (high - low) or 1.0, _BAND)
        band = bars.repeat(thick, 1)
        canvas.pixels[y + _LABEL : y + _LABEL + _BAND, MARGIN : MARGIN + band.shape[1]] = band
    return canvas


def _to_levels(compared: ComparedMaps, *, signed: bool) -> tuple[Pixels, Pixels, Pixels]:
    ends = (compared.low, compared.high, compared.largest)
    low, high, largest = (each[:, None, None] for each in ends)
    largest_of_both = np.maximum(-low, high)
    if signed:
        one, two = (_around_zero(each, largest_of_both) for each in (compared.a, compared.b))
    elif compared.is_flat:
        one, two = (_from_zero(each, largest_of_both) for each in (compared.a, compared.b))
    else:
        one, two = (_scale_range(each, low, high) for each in (compared.a, compared.b))
    return one, two, _around_zero(compared.difference, largest)


def _scale_range(values: Floats, low: Floats, high: Floats) -> Pixels:
    half = np.where(high > low, high / 2 - low / 2, 1)  # the difference of halves cannot overflow
    return _round_levels((values / 2 - low / 2) / half * (_EMBERS - 1), _NOT_FINITE)


def _from_zero(values: Floats, largest: Floats) -> Pixels:
    share = np.abs(values) / np.where(largest > 0, largest, 1)
    return _round_levels(share * (_LIGHTEST - _DARKEST) + _DARKEST, _NOT_FINITE)


def _around_zero(values: Floats, largest: Floats) -> Pixels:
    levels = values / np.where(largest > 0, largest, 1) * _HALF + _ZERO
    return _round_levels(levels, _NOT_FINITE_DIFFERENCE)


def _round_levels(levels: Floats, mark: int) -> Pixels:
    finite = np.isfinite(levels)
    return np.where(finite, np.where(finite, levels, 0).round(), mark).astype(np.uint8)


@functools.cache
def _palette(theme: Theme) -> tuple[int, ...]:
    ember, tide = (np.array(load_palette(name, theme)).reshape(-1, 3) for name in (EMBER, TIDE))
    steps = np.linspace(0, LEVELS - 1, _EMBERS).round().astype(int)
    around = np.linspace(1, LEVELS - 1, 2 * _HALF + 1).round().astype(int)
    marks = [ember[NOT_FINITE], tide[NOT_FINITE]]
    table = np.concatenate([ember[steps], tide[around], marks, ember[BACKGROUND:]])
    return tuple(int(value) for value in table.ravel())
