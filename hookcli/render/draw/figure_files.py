"""Files of figures that matplotlib draws."""

from __future__ import annotations

import io
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hookcli.config import PictureFormat

FONT = ("DejaVu Sans", "sans-serif")
# Without dates and versions and with fixed ids, the same figure always makes the same file.
_METADATA: dict[PictureFormat, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# To keep all spaces of a text, editors read the attribute and browsers the style.
_TEXT, _SPACED_TEXT = b'<text style="', b'<text xml:space="preserve" style="white-space: pre; '
_one_at_a_time = Lock()  # matplotlib's settings are global to the process


def encode(figure: Figure, form: PictureFormat) -> bytes:
    """Return the figure as a file with real text, always of the same bytes."""
    from matplotlib import rc_context

    stream = io.BytesIO()
    with (
        _one_at_a_time,
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "hookcli", "pdf.fonttype": 42}),
    ):
        figure.savefig(stream, format=form, metadata=_METADATA[form])
    data = stream.getvalue()
    return data.replace(_TEXT, _SPACED_TEXT) if form == "svg" else data
