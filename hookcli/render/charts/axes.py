"""Numbers and texts of logarithmic axes, and names of calls; nothing is drawn here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookcli.outside.escape import for_page

if TYPE_CHECKING:
    from collections.abc import Iterable

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def find_decades(values: Iterable[float]) -> tuple[int, int]:
    """Return exponents of ten strictly below and above all values, which are positive.

    Without values they are -1 and 1.
    """
    logs = [math.log10(value) for value in values]
    if not logs:
        return -1, 1
    return math.ceil(min(logs)) - 1, math.floor(max(logs)) + 1


def list_ticks(low: int, high: int) -> list[int]:
    """Return the exponents to label, from ``low`` on and at most eight."""
    return list(range(low, high + 1, -(-(high - low) // 7)))


def short_name(call_id: str, longest: int) -> str:
    """Return a call id for an axis: without ``grad_output:``, and of a long one only the end."""
    shown = for_page(call_id).removeprefix("grad_output:")
    return shown if len(shown) <= longest else f"…{shown[1 - longest :]}"


def power_of_ten(exponent: int) -> str:
    """Return ``10⁻³``."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)
