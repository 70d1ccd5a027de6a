"""Draw two activations, A and B, on one scale, and B - A, as a labelled PNG with one palette."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from hookcli.config import EMBER
from hookcli.records.pictures import LEVELS, NOT_FINITE
from hookcli.render.draw.canvas import (
    BACKGROUND,
    MARGIN,
    NOTE_SIZE,
    TIDE,
    Canvas,
    heading_height,
    load_palette,
    measure_text,
    new_canvas,
    to_png,
    write_text,
)
from hookcli.render.draw.compared_maps import TILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.config import Theme
    from hookcli.render.draw.canvas import Pixels
    from hookcli.render.draw.compared_maps import ComparedMaps

    Values = NDArray[np.float64]

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


def draw_compared_maps(
    compared: ComparedMaps, heading: Sequence[str], *, signed: bool = False, theme: Theme = "dark"
) -> tuple[bytes, tuple[int, int]]:
    """Return a PNG and its size; ``signed`` centres also the colours of A and B on zero."""
    canvas = (_draw_bars if compared.is_flat else _draw_maps)(compared, heading, signed=signed)
    return to_png(canvas.to_image(list(_palette(theme)))), canvas.size


def list_labels(compared: ComparedMaps) -> list[str]:
    """Return a label for each channel or, for bars, one for each of A, B and B - A."""
    if compared.is_flat:
        return _list_bar_labels(compared)
    columns = (compared.channels, compared.low, compared.high, compared.largest, compared.broken)
    return [
        f"channel {channel}:  {low:.3g} to {high:.3g},  {_difference_text(largest, broken)}"
        for channel, low, high, largest, broken in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _list_bar_labels(compared: ComparedMaps) -> list[str]:
    low, high = _bar_range(compared)
    largest = float(compared.largest[0])
    difference = _difference_text(largest, int(compared.broken[0]))
    both = f"{low:.3g} to {high:.3g}"
    of_difference = f"{0 - largest:.3g} to {largest:.3g},  {difference}"  # 0 must not become -0
    ranges = (both, both, of_difference)
    return [f"{head}   {each}" for head, each in zip(_HEADS, ranges, strict=True)]


def _bar_range(compared: ComparedMaps) -> tuple[float, float]:
    return min(0.0, float(compared.low[0])), max(0.0, float(compared.high[0]))


def _difference_text(largest: float, broken: int) -> str:
    places = f"not finite in {broken:,} place{'' if broken == 1 else 's'}"
    if broken:
        return f"{places}, else up to {largest:.3g} apart" if largest else places
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
    maps = [
        levels.repeat(factor * high, 1).repeat(factor, 2)
        for levels in _to_levels(compared, signed=signed)
    ]
    for index, label in enumerate(labels):
        x, y = MARGIN + index % _COLUMNS * step_x, top + index // _COLUMNS * step_y
        write_text(canvas, label, (x, y), size=NOTE_SIZE, width=widest)
        for place, (head, levels) in enumerate(zip(_HEADS, maps, strict=True)):
            left, upper = x + place * (width + _GAP), y + 2 * _LABEL
            write_text(canvas, head, (left, y + _LABEL), size=NOTE_SIZE, width=width)
            canvas.pixels[upper : upper + height, left : left + width] = levels[index]
    return canvas


def _draw_bars(compared: ComparedMaps, heading: Sequence[str], *, signed: bool) -> Canvas:
    both, largest = _bar_range(compared), float(compared.largest[0])
    thick = max(1, min(24, 1024 // max(1, compared.a.shape[2])))
    heading = [*heading, *_BARS_NOTES]
    step = _BAND + _LABEL + 10
    canvas = new_canvas(heading, compared.a.shape[2] * thick, 3 * step)
    labels, scales = list_labels(compared), (both, both, (-largest, largest))
    values = (compared.a[0], compared.b[0], compared.difference[0])
    for place, levels in enumerate(_to_levels(compared, signed=signed)):
        y = heading_height(heading) + place * step
        write_text(
            canvas, labels[place], (MARGIN, y), size=NOTE_SIZE, width=canvas.size[0] - 2 * MARGIN
        )
        band = _band(values[place][0], levels[0, 0], *scales[place]).repeat(thick, 1)
        canvas.pixels[y + _LABEL : y + _LABEL + _BAND, MARGIN : MARGIN + band.shape[1]] = band
    return canvas


def _to_levels(compared: ComparedMaps, *, signed: bool) -> tuple[Pixels, Pixels, Pixels]:
    """Scale A and B alike, around zero only with ``signed``, and B - A always around zero."""
    low, high, largest = (
        each[:, None, None] for each in (compared.low, compared.high, compared.largest)
    )
    largest_of_both = np.maximum(-low, high)
    if signed:
        one, two = (_around_zero(each, largest_of_both) for each in (compared.a, compared.b))
    elif compared.is_flat:
        one, two = (_from_zero(each, largest_of_both) for each in (compared.a, compared.b))
    else:
        one, two = (_scale_range(each, low, high) for each in (compared.a, compared.b))
    return one, two, _around_zero(compared.difference, largest)


def _scale_range(values: Values, low: Values, high: Values) -> Pixels:
    half = np.where(high > low, high / 2 - low / 2, 1)  # the difference of halves cannot overflow
    return _round_levels((values / 2 - low / 2) / half * (_EMBERS - 1), _NOT_FINITE)


def _from_zero(values: Values, largest: Values) -> Pixels:
    share = np.abs(values) / np.where(largest > 0, largest, 1)
    return _round_levels(share * (_LIGHTEST - _DARKEST) + _DARKEST, _NOT_FINITE)


def _around_zero(values: Values, largest: Values) -> Pixels:
    levels = values / np.where(largest > 0, largest, 1) * _HALF + _ZERO
    return _round_levels(levels, _NOT_FINITE_DIFFERENCE)


def _round_levels(levels: Values, mark: int) -> Pixels:
    finite = np.isfinite(levels)
    return np.where(finite, np.where(finite, levels, 0).round(), mark).astype(np.uint8)


def _band(values: Values, levels: Pixels, low: float, high: float) -> Pixels:
    """Draw n values as bars (height, n) from ``low`` to ``high``; NaN and Inf have full height."""
    finite, span = np.isfinite(values), (high - low) or 1.0
    tips = (np.where(finite, values, high) - low) / span * (_BAND - 1)
    zero = (0 - low) / span * (_BAND - 1)
    heights = np.arange(_BAND)[:, None]
    first = np.where(finite, np.minimum(tips, zero), 0).round()
    last = np.where(finite, np.maximum(tips, zero), _BAND - 1).round()
    inside = (heights >= first) & (heights <= last)
    band: Pixels = np.where(inside, levels, BACKGROUND + 1).astype(np.uint8)
    return band[::-1]


@functools.cache
def _palette(theme: Theme) -> tuple[int, ...]:
    ember, tide = (np.array(load_palette(name, theme)).reshape(-1, 3) for name in (EMBER, TIDE))
    steps = np.linspace(0, LEVELS - 1, _EMBERS).round().astype(int)
    around = np.linspace(1, LEVELS - 1, 2 * _HALF + 1).round().astype(int)
    marks = [ember[NOT_FINITE], tide[NOT_FINITE]]
    table = np.concatenate([ember[steps], tide[around], marks, ember[BACKGROUND:]])
    return tuple(int(value) for value in table.ravel())
