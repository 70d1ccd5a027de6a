"""Make the parts that SVG charts over depth share: log axes, legends, short and escaped names."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LEFT, RIGHT = 56, 948  # the left and right edge of every plot
_LONGEST_NAME = 24  # letters
_WIDTH = 960
_NAME = 13  # pixels per name
_MOST_BAR = 40.0
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def space_out(count: int) -> tuple[list[float], float]:
    step = (RIGHT - LEFT) / count
    return [LEFT + step * (index + 0.5) for index in range(count)], step


def drawing(label: str, kind: str, height: int, parts: Iterable[str]) -> str:
    begin = (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-label="{label}" class="{kind}">'
    )
    return "".join([begin, *parts, "</svg>"])


def rule(y: str) -> str:
    return f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}" class="zero"/>'


def tick(y: str, text: str) -> str:
    return f'<text x="{LEFT - 6}" y="{y}" class="tick">{text}</text>'


def decades(low: int, high: int, at: Callable[[int], float]) -> str:
    return "".join(
        rule(f"{at(exponent):.1f}") + tick(f"{at(exponent) + 4:.1f}", power_of_ten(exponent))
        for exponent in list_ticks(low, high)
    )


def caption(y: int, text: str) -> str:
    return f'<text x="{LEFT}" y="{y}" class="caption">{text}</text>'


def bar(x: float, y: float, step: float, height: float) -> str:
    width = min(step * 0.7, _MOST_BAR)
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        'class="bar"/>'
    )


def legend(heading: str, start: int, entries: Iterable[tuple[str, str]]) -> str:
    parts, x = [heading], LEFT + start
    for shape, text in entries:
        parts.append(
            f'<g transform="translate({x} 10)">{shape}<text x="13" y="4">{text}</text></g>'
        )
        x += 44 + 6 * len(text)
    return "".join(parts)


def drawing_of_calls(
    label: str, kind: str, parts: list[str], base: int, calls: Sequence[tuple[str, str, str | None]]
) -> str:
    """Return an SVG of ``parts``, with a column for each call: (id, tooltip, anchor or None).

    The column shows the tooltip and links to the anchor. Columns end, and names begin, at ``base``.
    """
    xs, step = space_out(len(calls))
    names = [short_name(call_id, _LONGEST_NAME) for call_id, _, _ in calls]
    parts.append(_names_below(names, xs, base))
    for x, (_, title, anchor) in zip(xs, calls, strict=True):
        parts.append(column(x, step, base, title=title, anchor=anchor))
    return drawing(label, kind, base + 16 + 7 * max(map(len, names)), parts)


def _names_below(names: Sequence[str], xs: Sequence[float], base: int) -> str:
    step = -(-len(names) * _NAME // (RIGHT - LEFT))
    return "".join(
        f'<text transform="translate({x + 4:.1f} {base + 8}) rotate(-90)" class="tick">'
        f"{escape(name)}</text>"
        for x, name in list(zip(xs, names, strict=True))[::step]
    )


def column(x: float, step: float, height: int, title: str, anchor: str | None) -> str:
    hit = (
        f'<rect x="{x - step / 2:.1f}" y="0" width="{step:.1f}" height="{height}" class="hit"/>'
        f"<title>{escape(title)}</title>"
    )
    return f'<a href="#{anchor}">{hit}</a>' if anchor else f"<g>{hit}</g>"


def find_decades(values: Iterable[float]) -> tuple[int, int]:
    logs = [math.log10(value) for value in values]
    if not logs:
        return -1, 1
    return math.ceil(min(logs)) - 1, math.floor(max(logs)) + 1


def list_ticks(low: int, high: int) -> list[int]:
    return list(range(low, high + 1, -(-(high - low) // 7)))


def short_name(call_id: str, longest: int) -> str:
    shown = for_page(call_id).removeprefix("grad_output:")
    return shown if len(shown) <= longest else f"…{shown[1 - longest :]}"


def power_of_ten(exponent: int) -> str:
    return "10" + str(exponent).translate(_SUPERSCRIPTS)
