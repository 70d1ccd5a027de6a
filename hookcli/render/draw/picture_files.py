"""Encode canvases as SVG or PDF, and matplotlib's figures as PNG, SVG or PDF, without dates."""

from __future__ import annotations

import io
from threading import Lock
from typing import TYPE_CHECKING, Any

from hookcli.render.draw.canvas import load_font, measure_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hookcli.config import PictureFormat
    from hookcli.render.draw.canvas import Canvas

_DPI = 72  # makes each pixel one point on the page
_FONT = ("DejaVu Sans", "sans-serif")
# Without dates and versions and with fixed ids, the same figure always makes the same file.
_METADATA: dict[PictureFormat, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# To keep all spaces of a text, editors read the attribute and browsers the style.
_TEXT, _SPACED_TEXT = b'<text style="', b'<text xml:space="preserve" style="white-space: pre; '
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "hookcli", "pdf.fonttype": 42}
_one_at_a_time = Lock()  # matplotlib's settings are global to the process


def to_vector(canvas: Canvas, palette: list[int], form: PictureFormat) -> bytes:
    import numpy as np
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for these formats
    from matplotlib.transforms import Bbox

    image = canvas.to_image(palette, has_text=False).convert("RGB")
    width, height = image.size
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    figure.figimage(np.asarray(image))
    ink = "#" + bytes(palette[-3:]).hex()
    for text in canvas.texts:
        ascent, _ = load_font(text.size).getmetrics()
        style = {"fontsize": text.size, "fontfamily": _FONT, "color": ink}
        x, y = text.x / width, 1 - (text.y + ascent) / height
        written = figure.text(x, y, text.words, style, parse_math=False)
        if measure_text(text.words, text.size) > text.width:
            top = height - text.y
            ends = [[text.x, top - 2 * text.size], [text.x + text.width, top + text.size]]
            written.set_clip_box(Bbox(ends))
            written.set_clip_on(True)
    return encode(figure, form)


def encode(figure: Figure, form: PictureFormat) -> bytes:
    from matplotlib import rc_context

    stream = io.BytesIO()
    with _one_at_a_time, rc_context(_SETTINGS):
        figure.savefig(stream, format=form, metadata=_METADATA[form])
    data = stream.getvalue()
    return data.replace(_TEXT, _SPACED_TEXT) if form == "svg" else data
