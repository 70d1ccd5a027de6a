"""Bytes to an upright RGB picture of 8 bits a channel, whatever the file's mode.

An image object that has raised once is never used again: its second try returns partial pixels.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import struct
import warnings
import zlib
from typing import TYPE_CHECKING

from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

_DECODING_ERRORS = (
    OSError, ValueError, TypeError, SyntaxError, NotImplementedError, LookupError, ArithmeticError,
    AttributeError, EOFError, MemoryError, RuntimeError, struct.error, zlib.error,
)  # fmt: skip
_VECTOR_FORMATS = ("EPS", "WMF", "PDF")  # EPS starts Ghostscript
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
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
        with warnings.catch_warnings(), _silent_tiff(data):
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with _open_raster(data) as image:
                if max(image.size) > _MOST_ASPECT * min(image.size):
                    raise UndecodableError(
                        f"is {image.width} by {image.height} pixels, too thin to show a network"
                    )
                count = getattr(image, "n_frames", 1) if frames > 1 else 1
                return _decode_frames(image, count, frames), count
    except UnidentifiedImageError as error:
        raise UndecodableError("is not an image that can be read") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UndecodableError("has more pixels than is safe to decode") from error
    except _DECODING_ERRORS as error:
        text = (getattr(error, "strerror", None) or str(error)).strip().splitlines()
        reason = text[0][:120] if text else type(error).__name__
        raise UndecodableError(f"cannot be decoded: {reason}") from error


def to_upright_rgb(image: Image.Image) -> Image.Image:
    """Turned as its EXIF data says, transparency on white, as 8-bit RGB.

    Greys of more than 8 bits are scaled to 8, which Pillow's own conversion would clip to white:
    16 bits by 257; 32-bit whole numbers that fit 16 bits likewise; floats from 0 to 1, or 0 to 255,
    as they are; all else from its own smallest to its largest value.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode in _DEEP:
        return _deep_to_rgb(image)
    if image.mode == "LAB":
        lab, rgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(image, lab, rgb, outputMode="RGB")
        return converted or image
    if image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return image.convert("RGB")


def _deep_to_rgb(image: Image.Image) -> Image.Image:
    """A grey picture of 16 or 32 bits; the value that stands for transparency becomes white."""
    import numpy as np  # 0.1 s: only for deep pictures

    values = np.asarray(image)
    grey = _to_bytes(values.astype(np.float64), image.mode)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[values == transparent] = 255
    return Image.fromarray(grey).convert("RGB")


def _to_bytes(values: NDArray[np.float64], mode: str) -> NDArray[np.uint8]:
    import numpy as np

    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if mode != "F" and low >= 0 and high <= 65535:
        scaled = values / 257
    elif mode == "F" and low >= 0 and high <= 1:
        scaled = values * 255
    elif mode == "F" and low >= 0 and high <= 255:
        scaled = values
    else:
        scaled = (values - low) * (255 / ((high - low) or 1.0))
    return np.nan_to_num(scaled, nan=0, posinf=255, neginf=0).round().clip(0, 255).astype(np.uint8)


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


def _open_raster(data: bytes) -> Image.Image:
    """The image, tried with the common formats first: finding all of Pillow's takes a while."""
    Image.preinit()
    try:
        return Image.open(io.BytesIO(data), formats=_raster_formats())
    except UnidentifiedImageError:
        Image.init()
        return Image.open(io.BytesIO(data), formats=_raster_formats())


def _raster_formats() -> list[str]:
    return [name for name in Image.OPEN if name not in _VECTOR_FORMATS]


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
