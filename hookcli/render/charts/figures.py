"""What pictures that matplotlib draws have in common."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, DIM, LINE = "#1a1b22", "#5c5f6e", "#8c2f63"


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG file that does not name matplotlib's version: the same figure gives the same bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
