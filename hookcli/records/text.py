"""Facts as people read them: shapes, figures, and what a run depended on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def shape_text(shape: Sequence[int]) -> str:
    """A shape as people see it: ``1x64x56x56``; ``scalar`` without axes."""
    return "x".join(str(length) for length in shape) or "scalar"


def figure_text(value: float | None) -> str:
    """Three digits of how far two calls are apart; empty where it is not known."""
    if value is None:
        return ""
    return f"{value:.3g}" if math.isfinite(value) else "not finite"


def and_more(rest: int, form: str = " and {} more") -> str:
    """Return how many are left after those that were named, as ``" and 3 more"``; empty if none is.

    Args:
        rest: how many there are; 0 or less is none.
        form: the text, with ``{}`` for the number, and ``{s}`` for the s of a plural.
    """
    return form.format(rest, s="" if rest == 1 else "s") if rest > 0 else ""


def fact_text(value: object) -> str:
    """What a run depends on, as people read it."""
    if value is None or value == "":
        return "none"
    return shape_text(value) if isinstance(value, list) else str(value)
