"""Decode PNG files of a run folder, which may come from a stranger."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

MOST_BYTES = 1 << 28  # of one file; a sheet of a large network has a few MB


def decode_png(data: bytes) -> Image.Image:
    """Decode a PNG file as RGB; raise a ValueError for another format, or too many pixels."""
    from PIL import Image  # takes 30 ms: imported only when needed

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as opened:
                return opened.convert("RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError("it has too many pixels") from error
    except (OSError, SyntaxError) as error:
        raise ValueError("it is not a PNG file") from error
