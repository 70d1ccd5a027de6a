"""Turn shapes (``1x64x56x56``), counts (``3 images``), numbers and lists into text for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as ``1x64x56x56``, or ``scalar`` if it has no axes."""
    return "x".join(str(length) for length in shape) or "scalar"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``2 files``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def figure_text(value: float | None) -> str:
    """Return a number with three significant digits, or ``not finite``; empty for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if math.isfinite(value) else "not finite"


def and_more(rest: int, form: str = " and {} more") -> str:
    """Return ``form`` with ``rest`` in its braces, such as " and 3 more"; "" for 0 or less."""
    return form.format(rest, s="" if rest == 1 else "s") if rest > 0 else ""


def fact_text(value: object) -> str:
    """Return any value as text, such as ``1x3x8x8`` for a shape, and ``none`` for an empty value.

    Several texts in a list are joined by ``; ``.
    """
    if value is None or value in ("", (), []):
        return "none"
    if not isinstance(value, (list, tuple)):
        return str(value)
    return "; ".join(value) if isinstance(value[0], str) else shape_text(value)
