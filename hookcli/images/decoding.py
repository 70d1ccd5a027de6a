"""Bytes to an upright RGB picture of 8 bits a channel, whatever the file's mode.

An image object that has raised once is never used again: its second try returns partial pixels.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import struct
import threading
import warnings
import zlib
from typing import TYPE_CHECKING

from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from hookcli.images import greys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.ImageFile import ImageFile

_DECODING_ERRORS = (
    OSError, ValueError, TypeError, SyntaxError, NotImplementedError, LookupError, ArithmeticError,
    AttributeError, EOFError, MemoryError, RuntimeError, struct.error, zlib.error, ImageCms.PyCMSError,
)  # fmt: skip
_VECTOR_FORMATS = ("EPS", "WMF", "PDF")  # EPS starts Ghostscript
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_WIDENED = {"L;2": 85, "L;4": 17}  # how Pillow names them, and what it multiplies them by
_UNREADABLE = re.compile(r"^-?\d+$|invalid literal|decoder error|unpack|b['\"]|0x|<")
# Filters of warnings and file descriptor 2 belong to the process: two threads that turned them aside
# at once would each put the other's back, and stderr would be gone for good.
_ALONE = threading.Lock()
_MOST_ASPECT = 10_000  # resized by its short side, a longer picture could fill the memory

logging.getLogger("PIL").addHandler(logging.NullHandler())  # else its warnings go to stderr


class UndecodableError(Exception):
    """A file is not an image that can be used; the text says why."""


def decode(data: bytes, frames: int = 1) -> tuple[list[Image.Image], int]:
    """The first picture, or ``frames`` of an animation at even distances, and how many the file holds.

    Raises:
        UndecodableError: it cannot be decoded.
    """
    try:
        with _ALONE, warnings.catch_warnings(), _silent_tiff(data):
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with _open_raster(data) as image:
                if max(image.size) > _MOST_ASPECT * min(image.size):
                    raise UndecodableError(
                        f"is {image.width} by {image.height} pixels, too thin to show a network"
                    )
                count = getattr(image, "n_frames", 1) if frames > 1 else 1
                _mend_transparency(image)
                return _decode_frames(image, count, frames), count
    except UnidentifiedImageError as error:
        raise UndecodableError("is not an image that can be read") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UndecodableError("has more pixels than is safe to decode") from error
    except _DECODING_ERRORS as error:
        raise UndecodableError(f"cannot be decoded: {_reason(error)}") from error


def to_upright_rgb(image: Image.Image) -> Image.Image:
    """Turned as its EXIF data says, transparency on white, as 8-bit RGB.

    Greys of more than 8 bits are scaled to 8, see ``greys.to_rgb``.
    """
    image.load()
    samples = greys.samples_of(image)
    image = ImageOps.exif_transpose(image)
    if samples is not None:
        return greys.to_rgb(image, samples)
    if image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return image.convert("RGB")


def _mend_transparency(image: ImageFile) -> None:
    """Put the transparent grey or colour of a PNG into the units of the pixels.

    Pillow widens pixels of 2 and 4 bits to 8 and cuts colours of 16 bits down to 8, and leaves what
    stands for transparency as it is in the file.

    Raises:
        UndecodableError: colours of 16 bits; which were transparent cannot be told from 8.
    """
    transparent = image.info.get("transparency")
    if image.format != "PNG" or transparent is None or not image.tile:
        return
    stored = image.tile[0].args
    if stored in _WIDENED:
        image.info["transparency"] = transparent * _WIDENED[stored]
    elif stored == "RGB;16B":
        raise UndecodableError("has a transparent colour of 16 bits, which cannot be read")


def _decode_frames(image: Image.Image, count: int, wanted: int) -> list[Image.Image]:
    """Frames at even distances; those after the first that cannot be decoded are left out."""
    pictures = [to_upright_rgb(image)]
    number = min(count, wanted)
    for place in range(1, number):
        try:
            image.seek(round(place * (count - 1) / (number - 1)))
            pictures.append(to_upright_rgb(image))
        except _DECODING_ERRORS:
            break
    return pictures


def _open_raster(data: bytes) -> ImageFile:
    """The image, tried with the common formats first: finding all of Pillow's takes a while."""
    Image.preinit()
    try:
        return Image.open(io.BytesIO(data), formats=_raster_formats())
    except UnidentifiedImageError:
        Image.init()
        return Image.open(io.BytesIO(data), formats=_raster_formats())


def _raster_formats() -> list[str]:
    return [name for name in Image.OPEN if name not in _VECTOR_FORMATS]


def _reason(error: Exception) -> str:
    """What a decoder says, on one line; what only a programmer would understand is put in words."""
    text = (getattr(error, "strerror", None) or str(error)).strip().splitlines()
    if not text or _UNREADABLE.search(text[0]):
        return "its data are damaged, or of a kind that is not known"
    return text[0][:120]


@contextlib.contextmanager
def _silent_tiff(data: bytes) -> Iterator[None]:
    """Keep what libtiff prints on its own from the terminal."""
    if not data.startswith(_TIFF):
        yield
        return
    with contextlib.ExitStack() as back:
        try:
            kept = os.dup(2)
        except OSError:  # stderr is closed
            kept = None
        if kept is not None:
            back.callback(os.close, kept)
            with open(os.devnull, "wb") as nothing:  # noqa: PTH123
                os.dup2(nothing.fileno(), 2)
            back.callback(os.dup2, kept, 2)
        yield
