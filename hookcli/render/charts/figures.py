"""Colours and PNG encoding of the pictures that matplotlib draws."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, DIM, LINE = "#1a1b22", "#5c5f6e", "#8c2f63"


def to_png(figure: Figure) -> bytes:
    """Return the figure as a PNG file, without the version of matplotlib in it."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
