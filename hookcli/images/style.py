"""How a picture file is read, and why it may not be a usable image."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from PIL import ImageCms

from hookcli.records.images import range_text

COLOURS = 3  # bands of a picture for people; a grey picture gets three equal ones
TOO_LARGE = "has too many pixels to decode safely"
INSTALL = "pip install 'hookcli[images]'"
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


class UndecodableError(Exception):
    """A file is not a usable image; the text of the error says why."""


class NoRangeError(UndecodableError):
    """The values of a picture have no natural range, and the picture is not alone in its run."""

    def __init__(self, low: float, high: float) -> None:
        """Store the smallest and the largest value."""
        self.ends = range_text(low, high)
        super().__init__(
            f"holds values from {self.ends.replace(',', ' to ')}, which have no natural range, and "
            "pictures of one run need the same: give `range`"
        )


@dataclass(frozen=True, slots=True)
class ReadStyle:
    """How to read picture files.

    Attributes:
        range: the range of values, as in ``config.ImageRequest``.
        bands: the bands to use, counted from 0; empty for all.
        page: the page to read; None for the first, and ``all`` to count the pages.
        is_alone: whether a picture without a natural range is drawn from its smallest to its
            largest value; otherwise, such a picture is refused.
    """

    range: str | tuple[float, float] = "full"
    bands: tuple[int, ...] = ()
    page: int | str | None = None
    is_alone: bool = True


PLAIN = ReadStyle()
