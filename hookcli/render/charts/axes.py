"""Ticks and labels of logarithmic axes, and short names of calls. Nothing here draws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Iterable

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def find_decades(values: Iterable[float]) -> tuple[int, int]:
    """Return the exponents of the nearest powers of ten below and above all values.

    All values must be positive. A power of ten that is equal to a value is not used. Without
    values, the exponents are -1 and 1.
    """
    logs = [math.log10(value) for value in values]
    if not logs:
        return -1, 1
    return math.ceil(min(logs)) - 1, math.floor(max(logs)) + 1


def list_ticks(low: int, high: int) -> list[int]:
    """Return at most eight evenly spaced exponents to label, from ``low`` up to ``high``.

    ``high`` must be larger than ``low``.
    """
    return list(range(low, high + 1, -(-(high - low) // 7)))


def short_name(call_id: str, longest: int) -> str:
    """Return a call id for an axis, without ``grad_output:``.

    Of an id with more than ``longest`` characters, only the end is kept.
    """
    shown = for_page(call_id).removeprefix("grad_output:")
    return shown if len(shown) <= longest else f"…{shown[1 - longest :]}"


def power_of_ten(exponent: int) -> str:
    """Return a power of ten as text: ``10⁻³``."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)
