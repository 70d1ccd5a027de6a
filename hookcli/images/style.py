"""Define how to read a picture (``ReadStyle``), errors of unusable pictures, and size limits."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image, ImageCms

from hookcli.errors import RequestError
from hookcli.records.images import join_intensities, range_text, suggest_range
from hookcli.records.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.records.images import Intensities

COLOURS = 3  # bands of a picture for people; a grey picture gets three equal ones
_MOST_ASPECT = 10_000  # resizing a longer picture by its short side could fill the memory
TOO_LARGE = "has too many pixels to decode safely"
INSTALL = "pip install 'hookcli[images]'"
DECODING_ERRORS = (
    *(OSError, ValueError, TypeError, SyntaxError, LookupError, ArithmeticError, AttributeError),
    *(EOFError, MemoryError, RuntimeError, struct.error, zlib.error, ImageCms.PyCMSError),
)


class UndecodableError(Exception):
    """Raised for a file that is not a usable image; the text of the error says why."""


class NoRangeError(UndecodableError):
    def __init__(self, low: float, high: float) -> None:
        self._why = (
            f"holds values from {range_text(low, high)}, which have no natural range, and all "
            "pictures of a run must share one `range`"
        )
        self.suggestion = suggest_range(low, high)
        super().__init__(f"{self._why}; {self.suggestion} holds them")

    def refuse(self, file: str) -> RequestError:
        return RequestError(
            f"{file!r} {self._why}",
            f"{self.suggestion} holds the values of the pictures read first; or each picture by "
            "itself: `range='minmax'`",
        )


def check_shared(ranges: Sequence[Intensities]) -> None:
    together, own = join_intensities(ranges), [each for each in ranges if each.rule == "own"]
    if together is not None and own:
        error = NoRangeError(own[0].smallest, own[0].largest)
        error.suggestion = suggest_range(together.smallest, together.largest)
        raise error


@dataclass(frozen=True, slots=True)
class ReadStyle:
    range: str | tuple[float, float] = "full"  # as in ``config.ImageRequest``
    bands: tuple[int, ...] = ()  # counted from 0; empty for all
    page: int | str | None = None  # None for the first; ``all`` counts the pages
    is_alone: bool = True  # whether a picture without a natural range gets its own, or is refused


PLAIN = ReadStyle()


def check_size(width: int, height: int, bands: int = 1) -> None:
    if not min(width, height) or max(width, height) > _MOST_ASPECT * min(width, height):
        raise UndecodableError(f"is {width} by {height} pixels, too thin to show a network")
    most = Image.MAX_IMAGE_PIXELS or 0
    if width * height > most or width * height * bands > COLOURS * most:
        raise UndecodableError(TOO_LARGE)


def check_page(page: int, pages: int) -> None:
    if page >= pages:
        raise UndecodableError(f"has {count(pages, 'page')}, and no page {page} (counted from 0)")
