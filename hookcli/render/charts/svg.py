"""What drawings over depth have in common, as SVG text: one width, axes, legends, names, what the mouse finds.

Texts are escaped here where a user can choose them: names and titles.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hookcli.render.charts.axes import list_ticks, power_of_ten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LEFT, RIGHT = 56, 948  # where the plot begins and ends
LONGEST_NAME = 24  # letters
_WIDTH = 960
_NAME = 13  # pixels that a name needs to stand beside another
_MOST_BAR = 40.0


def space_out(count: int) -> tuple[list[float], float]:
    """The middle of each of ``count`` columns beside one another, and the width of one."""
    step = (RIGHT - LEFT) / count
    return [LEFT + step * (index + 0.5) for index in range(count)], step


def drawing(label: str, kind: str, height: int, parts: Iterable[str]) -> str:
    """A drawing of the parts, with what it is called where it is not seen."""
    begin = (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="{label}" class="{kind}">'
    )
    return "".join([begin, *parts, "</svg>"])


def rule(y: str) -> str:
    """A line across the plot, at ``y`` as it is written in the file."""
    return f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" class="zero"/>'


def tick(y: str, text: str) -> str:
    """What a line stands for, to the left of the plot."""
    return f'<text x="{LEFT - 6}" y="{y}" class="tick">{text}</text>'


def decades(low: int, high: int, at: Callable[[int], float]) -> str:
    """Lines across the plot at powers of ten; ``at`` is the height of an exponent."""
    return "".join(
        rule(f"{at(exponent):.1f}") + tick(f"{at(exponent) + 4:.1f}", power_of_ten(exponent))
        for exponent in list_ticks(low, high)
    )


def caption(y: int, text: str) -> str:
    """What a plot shows."""
    return f'<text x="{LEFT}" y="{y}" class="caption">{text}</text>'


def bar_width(step: float) -> float:
    """The width of a bar in a column of this width."""
    return min(step * 0.7, _MOST_BAR)


def bar(x: float, y: float, width: float, height: float) -> str:
    """A bar with its middle at ``x`` and its upper edge at ``y``."""
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        'class="bar"/>'
    )


def legend(heading: str, start: int, entries: Iterable[tuple[str, str]]) -> str:
    """The heading, and from ``start`` on each shape with what it stands for."""
    parts, x = [heading], LEFT + start
    for shape, text in entries:
        parts.append(
            f'<g transform="translate({x} 10)">{shape}<text x="13" y="4">{text}</text></g>'
        )
        x += 44 + 6 * len(text)
    return "".join(parts)


def names_below(names: Sequence[str], places: Sequence[float], base: int) -> str:
    """The name of every column, or of every n-th where they would run into each other."""
    step = -(-len(names) * _NAME // (RIGHT - LEFT))
    return "".join(
        f'<text transform="translate({x + 4:.1f} {base + 8}) rotate(-90)" class="tick">'
        f"{escape(name)}</text>"
        for x, name in list(zip(places, names, strict=True))[::step]
    )


def height_with_names(names: Sequence[str], base: int) -> int:
    """How tall a drawing is that has names below its plot."""
    return base + 16 + 7 * max(map(len, names))


def column(x: float, step: float, height: int, title: str, anchor: str | None) -> str:
    """A column that shows its title to the mouse and, where the page has a place for it, leads there."""
    hit = (
        f'<rect x="{x - step / 2:.1f}" y="0" width="{step:.1f}" height="{height}" class="hit"/>'
        f"<title>{escape(title)}</title>"
    )
    return f'<a href="#{anchor}">{hit}</a>' if anchor else f"<g>{hit}</g>"
