"""Ticks and labels of logarithmic axes, and short names of calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Iterable

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def find_decades(values: Iterable[float]) -> tuple[int, int]:
    """Return the exponents of the powers of ten below and above all positive values."""
    logs = [math.log10(value) for value in values]
    if not logs:
        return -1, 1
    return math.ceil(min(logs)) - 1, math.floor(max(logs)) + 1


def list_ticks(low: int, high: int) -> list[int]:
    """Return at most eight evenly spaced exponents to label, from ``low`` up to ``high``."""
    return list(range(low, high + 1, -(-(high - low) // 7)))


def short_name(call_id: str, longest: int) -> str:
    """Return the end of a call id, without ``grad_output:``, for an axis."""
    shown = for_page(call_id).removeprefix("grad_output:")
    return shown if len(shown) <= longest else f"…{shown[1 - longest :]}"


def power_of_ten(exponent: int) -> str:
    """Return a power of ten as text: ``10⁻³``."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)
