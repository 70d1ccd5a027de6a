"""The files of a picture: a PNG and, if the user requested it, an SVG or a PDF beside the PNG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.render.draw.canvas import measure_text, text_ascent, to_png
from hookcli.store.places.names import list_formats

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookcli.config import GridStyle, PictureFormat
    from hookcli.render.draw.canvas import Canvas

_DPI = 72  # makes each pixel one point on the page


def write_picture(
    write: Callable[[str, bytes], str],
    file: str,
    canvas: Canvas,
    *,
    palette: list[int],
    style: GridStyle,
) -> None:
    """Write the PNG ``file`` and, if ``style`` names another format, also that one."""
    write(file, to_png(canvas.to_image(palette)))
    for other in list_formats(file, style.format)[1:]:
        write(other, to_vector(canvas, palette, style.format))


def to_vector(canvas: Canvas, palette: list[int], form: PictureFormat) -> bytes:
    """Return a picture as an SVG or PDF file with real text over one embedded image."""
    import numpy as np
    from matplotlib.figure import Figure  # takes 0.5 s: imported only for these formats
    from matplotlib.transforms import Bbox

    from hookcli.render.draw.figure_files import FONT, encode

    image = canvas.to_image(palette, has_text=False).convert("RGB")
    width, height = image.size
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    figure.figimage(np.asarray(image))
    ink = "#" + bytes(palette[-3:]).hex()
    for text in canvas.texts:
        written = figure.text(
            text.x / width,
            1 - (text.y + text_ascent(text.size)) / height,
            text.words,
            fontsize=text.size,
            fontfamily=FONT,
            color=ink,
            parse_math=False,
        )
        if measure_text(text.words, text.size) > text.width:
            top = height - text.y
            written.set_clip_box(
                Bbox([[text.x, top - 2 * text.size], [text.x + text.width, top + text.size]])
            )
            written.set_clip_on(True)
    return encode(figure, form)
