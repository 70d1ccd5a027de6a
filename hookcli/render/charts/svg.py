"""Parts that drawings over depth share, as SVG text: axes, bars, legends, names, and tooltips.

Names and titles are escaped here; other texts are our own.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hookcli.render.charts.axes import list_ticks, power_of_ten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LEFT, RIGHT = 56, 948  # the left and right edge of every plot
LONGEST_NAME = 24  # letters
_WIDTH = 960
_NAME = 13  # pixels per name
_MOST_BAR = 40.0


def space_out(count: int) -> tuple[list[float], float]:
    """Return the middle of each of ``count`` columns side by side, and the width of a column."""
    step = (RIGHT - LEFT) / count
    return [LEFT + step * (index + 0.5) for index in range(count)], step


def drawing(label: str, kind: str, height: int, parts: Iterable[str]) -> str:
    """Return a whole drawing; ``label`` describes it to people who do not see it."""
    begin = (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="{label}" class="{kind}">'
    )
    return "".join([begin, *parts, "</svg>"])


def rule(y: str) -> str:
    """Return a line across the plot; ``y`` is written as it is."""
    return f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" class="zero"/>'


def tick(y: str, text: str) -> str:
    """Return the label of a line, to the left of the plot."""
    return f'<text x="{LEFT - 6}" y="{y}" class="tick">{text}</text>'


def decades(low: int, high: int, at: Callable[[int], float]) -> str:
    """Return labelled lines at powers of ten; ``at`` returns the y of an exponent."""
    return "".join(
        rule(f"{at(exponent):.1f}") + tick(f"{at(exponent) + 4:.1f}", power_of_ten(exponent))
        for exponent in list_ticks(low, high)
    )


def caption(y: int, text: str) -> str:
    """Return the caption of a plot."""
    return f'<text x="{LEFT}" y="{y}" class="caption">{text}</text>'


def bar_width(step: float) -> float:
    """Return the width of a bar in a column that is ``step`` wide."""
    return min(step * 0.7, _MOST_BAR)


def bar(x: float, y: float, width: float, height: float) -> str:
    """Return a bar with its middle at ``x`` and its upper edge at ``y``."""
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        'class="bar"/>'
    )


def legend(heading: str, start: int, entries: Iterable[tuple[str, str]]) -> str:
    """Return the heading followed, from ``start`` on, by each shape with its meaning."""
    parts, x = [heading], LEFT + start
    for shape, text in entries:
        parts.append(
            f'<g transform="translate({x} 10)">{shape}<text x="13" y="4">{text}</text></g>'
        )
        x += 44 + 6 * len(text)
    return "".join(parts)


def names_below(names: Sequence[str], places: Sequence[float], base: int) -> str:
    """Return the name of every column, or of every n-th if they would overlap."""
    step = -(-len(names) * _NAME // (RIGHT - LEFT))
    return "".join(
        f'<text transform="translate({x + 4:.1f} {base + 8}) rotate(-90)" class="tick">'
        f"{escape(name)}</text>"
        for x, name in list(zip(places, names, strict=True))[::step]
    )


def height_with_names(names: Sequence[str], base: int) -> int:
    """Return the height of a drawing that has names below its plot."""
    return base + 16 + 7 * max(map(len, names))


def column(x: float, step: float, height: int, title: str, anchor: str | None) -> str:
    """Return a column that shows a title as tooltip and, with an anchor, is a link."""
    hit = (
        f'<rect x="{x - step / 2:.1f}" y="0" width="{step:.1f}" height="{height}" class="hit"/>'
        f"<title>{escape(title)}</title>"
    )
    return f'<a href="#{anchor}">{hit}</a>' if anchor else f"<g>{hit}</g>"
