"""Logarithmic axes, and the names of calls along an axis: numbers and text, whoever draws them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Iterable

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def find_decades(values: Iterable[float]) -> tuple[int, int]:
    """Powers of ten that the values, all above 0, lie strictly between; -1 and 1 without values."""
    logs = [math.log10(value) for value in values]
    if not logs:
        return -1, 1
    return math.ceil(min(logs)) - 1, math.floor(max(logs)) + 1


def list_ticks(low: int, high: int) -> list[int]:
    """Exponents from ``low`` on to label, at most eight of them."""
    return list(range(low, high + 1, -(-(high - low) // 7)))


def short_name(call_id: str, longest: int) -> str:
    """A call as an axis names it: without the side that all have, and of a long one the end."""
    shown = for_page(call_id).removeprefix("grad_output:")
    return shown if len(shown) <= longest else f"…{shown[1 - longest :]}"


def power_of_ten(exponent: int) -> str:
    """``10⁻³``."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)
