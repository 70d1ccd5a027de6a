"""Make the parts that SVG charts over depth share: axes, legends, short and escaped names."""

from __future__ import annotations

import itertools
import math
from html import escape
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

LEFT = 56  # the left edge of every plot, in pixels; ticks are beside it
_NARROWEST, _WIDEST, _EACH, _MARGIN = 340, 960, 60, 12  # pixels: of a chart, of a layer, at the end
_LONGEST_NAME = 24  # letters
_NAME, _LETTER = 13, 6.5  # pixels: the height of a name, and the width of a letter
_MOST_BAR = 40.0
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Chart:
    """Collects the parts of a chart that has a column for each of ``count`` layers."""

    def __init__(self, count: int) -> None:
        self.axis: list[str] = []  # ticks and captions; they stay while ``parts`` scroll sideways
        self.parts: list[str] = []
        self.width = min(_WIDEST, max(_NARROWEST, LEFT + _EACH * count + _MARGIN))
        self.step = (self.width - _MARGIN - LEFT) / count
        self.xs = [LEFT + self.step * (index + 0.5) for index in range(count)]

    def rule(self, y: float, label: str) -> None:
        end = self.width - _MARGIN
        self.parts.append(f'<line x1="{LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" class="zero"/>')
        self.axis.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="tick">{label}</text>')

    def decades(self, low: int, high: int, at: Callable[[int], float]) -> None:
        for exponent in list_ticks(low, high):
            self.rule(at(exponent), power_of_ten(exponent))

    def caption(self, y: float, text: str) -> None:
        self.axis.append(f'<text x="{LEFT}" y="{y:.0f}" class="caption">{text}</text>')

    def bar(self, x: float, y: float, base: float, kind: str = "") -> None:
        width = min(self.step * 0.7, _MOST_BAR)
        self.parts.append(
            f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{base - y:.1f}" class="{f"bar {kind}".rstrip()}"/>'
        )

    def draw(
        self, label: str, kind: str, base: int, calls: Sequence[tuple[str, str, str | None]]
    ) -> str:
        """Return the chart as HTML, with a column for each of ``calls``: (id, tooltip, anchor).

        A column shows its tooltip and, unless the anchor is None, links to the anchor. Columns end
        at the y coordinate ``base``, and the names are below.
        """
        height = base + self._write_names([call for call, _, _ in calls], base)
        for x, (_, title, anchor) in zip(self.xs, calls, strict=True):
            self.parts.append(_column(x, self.step, base, title=title, anchor=anchor))
        return (
            f'<div class="plot" style="min-width: {self.width}px; max-width: {1.3 * self.width}px">'
            f'<svg viewBox="0 0 {LEFT} {height}" class="axis {kind}">{"".join(self.axis)}</svg>'
            f'<svg viewBox="{LEFT} 0 {self.width - LEFT} {height}" role="group" '
            f'aria-label="{label}" class="{kind}" style="flex-grow: {self.width - LEFT}">'
            f"{''.join(self.parts)}</svg></div>"
        )

    def _write_names(self, calls: Sequence[str], base: int) -> int:
        """Write the names level if all fit, or else turned, and only some; return their height."""
        names = [short_name(call, _LONGEST_NAME) for call in calls]
        longest = max(map(len, names))
        upright = (longest + 1) * _LETTER <= self.step
        every = 1 if upright else math.ceil(_NAME / self.step)
        for x, name in list(zip(self.xs, names, strict=True))[::every]:
            at = f"{x:.1f} {base + 16}" if upright else f"{x + 4:.1f} {base + 8}"
            turn, kind = ("", "name") if upright else (" rotate(-90)", "tick")
            place = f"translate({at}){turn}"
            self.parts.append(f'<text transform="{place}" class="{kind}">{escape(name)}</text>')
        return 24 if upright else math.ceil(16 + _LETTER * longest)


def legend(kind: str, entries: Iterable[tuple[str, str]]) -> str:
    """Return HTML that explains shapes. An entry is a shape (SVG around 0,0) and its meaning."""
    shown = (
        f'<span><svg viewBox="-10 -8 20 16" class="{kind}" aria-hidden="true">{shape}</svg> '
        f"{text}</span>"
        for shape, text in entries
    )
    return f'<p class="legend">{" ".join(shown)}</p>'


def list_runs(points: Iterable[tuple[float, ...] | None]) -> Iterator[list[tuple[float, ...]]]:
    """Yield each run of neighbouring points; a missing point (None) is a gap between two runs."""
    for is_known, run in itertools.groupby(points, bool):
        if is_known:
            yield [point for point in run if point]


def join(points: Iterable[tuple[float, ...]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _column(x: float, step: float, height: int, title: str, anchor: str | None) -> str:
    hit = (
        f'<rect x="{x - step / 2:.1f}" y="0" width="{step:.1f}" height="{height}" class="hit"/>'
        f"<title>{escape(title)}</title>"
    )
    return f'<a href="#{anchor}">{hit}</a>' if anchor else f"<g>{hit}</g>"


def find_decades(values: Iterable[float]) -> tuple[int, int]:
    if not (logs := [math.log10(value) for value in values]):
        return -1, 1
    return math.ceil(min(logs)) - 1, math.floor(max(logs)) + 1


def list_ticks(low: int, high: int) -> list[int]:
    return list(range(low, high + 1, -(-(high - low) // 7)))


def list_round_ticks(low: float, high: float, unit: float) -> list[float]:
    """Return 0 and at most nine of 1, 2, 5, 10 …, well apart on an axis of asinh(v / unit)."""
    least = (math.asinh(high / unit) - math.asinh(low / unit)) / 9
    ticks = [0.0]
    for end in filter(None, (low, high)):
        first, last = (math.floor(math.log10(each)) for each in (min(unit, abs(end)), abs(end)))
        place = 0.0
        for exponent, digit in itertools.product(range(first - 1, last + 1), (1, 2, 5)):
            value = float(f"{digit}e{exponent}")
            if value <= abs(end) and math.asinh(value / unit) - place >= least:
                place = math.asinh(value / unit)
                ticks.append(math.copysign(value, end))
    return ticks


def short_name(call_id: str, longest: int) -> str:
    shown = for_page(call_id).removeprefix("grad_output:")
    if len(shown) <= longest:
        return shown
    end = shown[1 - longest :]
    return f"…{end[end.find('.', 0, 4) + 1 :]}"  # without the last letters of a name


def power_of_ten(exponent: int) -> str:
    return "10" + str(exponent).translate(_SUPERSCRIPTS)
