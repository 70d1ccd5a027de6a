"""Shrink images to square thumbnails, and draw them side by side in one JPEG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image, ImageOps

if TYPE_CHECKING:
    from collections.abc import Sequence

SIDE = 112  # pixels; a multiple of 8, the side of a JPEG block
COLUMNS = 8
_QUALITY = 70
_ALL_COLORS = 0  # full colour resolution, so that adjacent thumbnails do not mix their colours


def shrink(seen: bytes) -> bytes:
    """Return the RGB bytes of an image file's central square, scaled to ``SIDE`` pixels."""
    with Image.open(io.BytesIO(seen)) as picture:
        return ImageOps.fit(picture.convert("RGB"), (SIDE, SIDE)).tobytes()


def draw_thumbnails(thumbnails: Sequence[bytes]) -> bytes:
    sheet = Image.new("RGB", (COLUMNS * SIDE, -(-len(thumbnails) // COLUMNS) * SIDE))
    for index, thumbnail in enumerate(thumbnails):
        square = Image.frombytes("RGB", (SIDE, SIDE), thumbnail)
        sheet.paste(square, (index % COLUMNS * SIDE, index // COLUMNS * SIDE))
    stream = io.BytesIO()
    sheet.save(stream, "JPEG", quality=_QUALITY, subsampling=_ALL_COLORS, optimize=True)
    return stream.getvalue()
