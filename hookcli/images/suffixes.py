"""The suffixes by which images are recognised in a folder."""

from __future__ import annotations

import functools

from PIL import Image

# Drawings, a film, and weather and science data; Pillow reads no more than their headers.
_NO_PICTURES = {"EPS", "WMF", "MPEG", "BUFR", "GRIB", "HDF5"}
_JPEG_TOO = ".mpo"  # a separate format to Pillow, which its JPEG reader opens


@functools.cache
def image_suffixes() -> tuple[str, ...]:
    """Return the suffixes, in lower case, of files that Pillow can make a picture of."""
    Image.init()
    readable = Image.OPEN.keys() - _NO_PICTURES
    suffixes = Image.registered_extensions().items()
    return (_JPEG_TOO, *sorted(suffix for suffix, kind in suffixes if kind in readable))
