"""Thumbnails of images, which stand side by side in one picture."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image, ImageOps

if TYPE_CHECKING:
    from collections.abc import Sequence

SIDE = 112  # pixels; a multiple of the 8 of a JPEG's blocks
COLUMNS = 8
_QUALITY = 70
_ALL_COLORS = 0  # colours at full resolution: otherwise those of neighbours would mix


def shrink(seen: bytes) -> bytes:
    """Return the thumbnail of an image: the colours of its middle, a square of ``SIDE`` pixels."""
    with Image.open(io.BytesIO(seen)) as picture:
        return ImageOps.fit(picture.convert("RGB"), (SIDE, SIDE)).tobytes()


def draw_thumbnails(thumbnails: Sequence[bytes]) -> bytes:
    """Return a JPEG with thumbnails side by side, in rows of ``COLUMNS``.

    A row that is not full ends in black, also if it is the only one.
    """
    rows = -(-len(thumbnails) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * SIDE, rows * SIDE))
    for index, thumbnail in enumerate(thumbnails):
        square = Image.frombytes("RGB", (SIDE, SIDE), thumbnail)
        sheet.paste(square, (index % COLUMNS * SIDE, index // COLUMNS * SIDE))
    stream = io.BytesIO()
    sheet.save(stream, "JPEG", quality=_QUALITY, subsampling=_ALL_COLORS, optimize=True)
    return stream.getvalue()
