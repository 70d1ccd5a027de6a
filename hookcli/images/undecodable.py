"""Why a file cannot be decoded: what decoders raise, and the reasons that hookcli reports."""

from __future__ import annotations

import struct
import zlib

from PIL import ImageCms

from hookcli.records.images import range_text
from hookcli.records.text import count

DECODING_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    SyntaxError,
    LookupError,
    ArithmeticError,
    AttributeError,
    EOFError,
    MemoryError,
    RuntimeError,
    struct.error,
    zlib.error,
    ImageCms.PyCMSError,
)
INSTALL = "pip install 'hookcli[images]'"


class UndecodableError(Exception):
    """A file is not a usable image; the text of the error says why."""


class NoRangeError(UndecodableError):
    """The values of a picture have no natural range, and the picture is not alone in its run."""

    def __init__(self, low: float, high: float) -> None:
        """Store the smallest and the largest value."""
        ends = range_text(low, high)
        super().__init__(
            f"holds values from {ends.replace(',', ' to ')}, which have no natural range: give one "
            f"for all pictures with `range=({ends})`"
        )
        self.low, self.high = low, high


def check_page(place: int, pages: int) -> None:
    """Check that a file has a page.

    Raises:
        UndecodableError: the page does not exist.
    """
    if place >= pages:
        raise UndecodableError(f"has {count(pages, 'page')}, and no page {place} (counted from 0)")
