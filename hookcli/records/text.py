"""Facts as people read them: shapes, figures, and what a run depended on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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


def fact_text(value: Any) -> str:
    """What a run depends on, as people read it."""
    if value is None or value == "":
        return "none"
    return shape_text(value) if isinstance(value, list) else str(value)
