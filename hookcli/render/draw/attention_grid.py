"""Draw attention: the maps of all heads for one query, and transparent maps for a run's page."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from hookcli.render.draw.canvas import (
    MARGIN,
    NOTE_SIZE,
    Canvas,
    heading_height,
    measure_text,
    new_canvas,
    to_png,
    write_text,
)
from hookcli.render.draw.heatmap import SEEN_NOTE, choose_colours, draw_bar, lay_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_GAP, _CAPTION, _BAR = 10, 16, 8  # pixels
_LARGER = 168 / 64  # how much larger a map over a picture is than a channel's tile
_BAR_NOTE = "0 to its largest value"
_MARK, _MARK_EDGE = (0, 229, 255), (10, 10, 14)


def draw_heads(
    seen: bytes,
    maps: NDArray[np.float32],
    labels: Sequence[str],
    heading: Sequence[str],
    mark: tuple[float, float, float, float] | None = None,
    tile: int = 64,
) -> Canvas:
    # ``maps`` (heads, h, w) has no negative value. ``mark`` is the query's area: left, top, width
    # and height as shares of the image. ``tile``: see GridStyle; a map is 2.6 times as large.
    picture = Image.open(io.BytesIO(seen)).convert("RGB")
    factor = _LARGER * tile / max(picture.size)
    width, height = (max(1, round(side * factor)) for side in picture.size)
    size = width, height
    shown = picture.resize(size, Image.Resampling.LANCZOS)
    columns = _columns(len(maps))
    notes = [_scale_note(values) for values in maps]
    texts = (SEEN_NOTE, _BAR_NOTE, *labels, *notes)
    widest = max([width, *(measure_text(text, NOTE_SIZE) for text in texts)])
    step_x, step_y = widest + _GAP, height + 2 * _CAPTION + _GAP
    top = heading_height(heading) + _CAPTION
    canvas = new_canvas(heading, (columns + 1) * step_x - _GAP, -(-len(maps) // columns) * step_y)
    write_text(canvas, SEEN_NOTE, (MARGIN, top - _CAPTION), size=NOTE_SIZE, width=widest)
    below = top + height + 6
    write_text(canvas, _BAR_NOTE, (MARGIN, below + _BAR), size=NOTE_SIZE, width=widest)
    canvas.photos.append((_add_frame(shown, mark), (MARGIN, top)))
    canvas.photos.append((Image.fromarray(draw_bar(width).repeat(_BAR, 0)), (MARGIN, below)))
    for index, (values, label, note) in enumerate(zip(maps, labels, notes, strict=True)):
        x = MARGIN + (1 + index % columns) * step_x
        y = top + index // columns * step_y
        write_text(canvas, label, (x, y - _CAPTION), size=NOTE_SIZE, width=widest)
        write_text(canvas, note, (x, y + height + 2), size=NOTE_SIZE, width=widest)
        pixels = lay_over(shown, _shares(values, size))
        canvas.photos.append((_add_frame(Image.fromarray(pixels), mark), (x, y)))
    return canvas


def draw_maps(levels: NDArray[np.uint8]) -> bytes:
    """Return a map (H, W), 0 to 255, as a PNG with transparent colours, to lay over an image."""
    # A page lays the file over a grey copy of the image, which looks like a map of ``draw_heads``.
    colours, cover = choose_colours(np.linspace(0, 1, 256, dtype=np.float32))
    image = Image.fromarray(levels)
    image.putpalette(colours.round().astype(np.uint8).tobytes())
    image.info["transparency"] = (255 * cover).round().astype(np.uint8).tobytes()
    return to_png(image)


def _columns(count: int) -> int:
    wanted = math.sqrt(1.5 * count)
    even = [n for n in range(1, count + 1) if count % n == 0 and wanted / 1.6 < n < wanted * 1.8]
    return min(even, key=lambda n: abs(n - wanted)) if even else math.ceil(wanted)


def _scale_note(values: NDArray[np.float32]) -> str:
    if broken := int((~np.isfinite(values)).sum()):
        return f"not drawn: {broken} not finite"
    return f"largest {values.max(initial=0):.3g}"


def _shares(values: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Divide a map by its maximum, and enlarge it to ``size``. With NaN or Inf, return zeros."""
    if not np.isfinite(values).all():
        values = np.zeros_like(values)
    drawn = values / (values.max(initial=0) or 1)
    width, height = size
    rows = np.arange(height) * values.shape[0] // height
    columns = np.arange(width) * values.shape[1] // width
    shares: NDArray[np.float32] = drawn[rows][:, columns].clip(0, 1)
    return shares


def _add_frame(image: Image.Image, mark: tuple[float, float, float, float] | None) -> Image.Image:
    framed = image.copy()
    if mark is not None:
        left, top, width, height = mark
        x, right = (round(share * image.width) for share in (left, left + width))
        y, bottom = (round(share * image.height) for share in (top, top + height))
        draw = ImageDraw.Draw(framed)
        draw.rectangle((x - 2, y - 2, right + 1, bottom + 1), outline=_MARK_EDGE)
        draw.rectangle((x - 1, y - 1, right, bottom), outline=_MARK)
    return framed
