"""Decode picture files and turn them upright; say what an unreadable file is (video, PDF, HEIC).

Pictures are 8-bit RGB, or have as many bands as the file has. An image object that has raised an
exception is never used again: a second try would return partial pixels. At most two full-size
pictures are in memory at a time; the largest takes 340 MB.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import re
import threading
import warnings
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from hookcli.images.rgb import samples_of_image, to_rgb, values_of
from hookcli.images.style import (
    DECODING_ERRORS,
    INSTALL,
    PLAIN,
    TOO_LARGE,
    ReadStyle,
    UndecodableError,
    check_page,
    check_shared,
    check_size,
)
from hookcli.records.images import join_intensities, spread_evenly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.ImageFile import ImageFile

    from hookcli.images.intensities import BandPicture
    from hookcli.records.images import Intensities

    Picture: TypeAlias = Image.Image | BandPicture

# To open EPS, Pillow starts Ghostscript. In FITS, it ignores signs and scales.
_LEFT_OUT = ("EPS", "WMF", "PDF", "FITS")
# Formats of drawings, films, and weather and science data, of which Pillow reads only headers.
_NO_PICTURES = {"EPS", "WMF", "MPEG", "BUFR", "GRIB", "HDF5"}
# .mpo is a format of its own to Pillow, but Pillow's JPEG reader opens it
_OTHERS = (".mpo", ".heic", ".heif", ".hif", ".dcm", ".dicom", ".nii", ".nii.gz", ".jxl", ".exr")
_HEIC = re.compile(rb"....ftyp(hei|hev|mif|msf)", re.DOTALL)
_NEEDS_HEIF = f", which needs pillow-heif: {INSTALL}"
_PICTURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n|GIF8|RIFF....WEBP|\0\0\0\x0cjP  |....ftypavi"
    rb"|.{128}DICM|.{344}n[+i]1",
    re.DOTALL,
)
PICTURE_HEAD = 348  # bytes that show whether a file is a picture
_UNREAD = {
    rb"\xff\x0a|\0{3}\x0cJXL ": "a JPEG XL",
    rb"\x76\x2f\x31\x01": "an OpenEXR",
    rb"#\?R": "a Radiance HDR",
    rb"SIMPLE  =": "a FITS",
}  # by the first bytes
_OTHER_KINDS = {
    rb".{344}(n\+|ni)1|.{4}n[+i]2": (
        "is a NIfTI volume, not a picture: save its slices as .npy or PNG files"
    ),
    rb".{4}ftyp(?!avi)|\x1aE\xdf\xa3|\0\0\x01[\xba\xb3]|.{8}AVI ": (
        "is a video, not an image: save its frames: ffmpeg -i FILE frame-%04d.png"
    ),
    rb"%PDF": "is a PDF, not an image: save its pages as images: pdftoppm -png FILE page",
}
_PAGED = ("TIFF", "HEIF")  # formats in which a file can hold several pictures
_PLANAR, _EXTRA_SAMPLES, _BITS, _SUBFILE = 284, 338, 258, 254  # tags of TIFF 6.0
_UNSPECIFIED = 0  # an extra sample that is not transparency
_WITH_BANDS = ("L", "LA", "RGB", "RGBA", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_WIDENED = {"L;2": 85, "L;4": 17}  # Pillow's names, and the factor by which Pillow expands them
_UNREADABLE = re.compile(
    r"^-?\d+$|invalid literal|Invalid argument|negative seek|decoder error|unpack|b['\"]|0x|<"
)
_ALONE = threading.Lock()  # warning filters belong to the process, not to a thread
_MOST_READ = 256 << 20  # bytes; a larger file is not read into memory as a whole

logging.getLogger("PIL").addHandler(logging.NullHandler())  # keeps Pillow's warnings off stderr


@dataclass(frozen=True, slots=True)
class Decoded:
    pictures: list[Picture]
    count: int = 1  # of frames in the file or, for one picture, of pages; 1 if it is not known
    intensities: Intensities | None = None  # None for values of 8 bits


def decode(file: BinaryIO, frames: int = 1, style: ReadStyle = PLAIN) -> Decoded:
    try:
        # libtiff would map an open file into memory, and the process would be killed if someone
        # then truncated the file
        if file.seek(0, os.SEEK_END) <= _MOST_READ:
            file.seek(0)
            file = io.BytesIO(file.read())
        with _ALONE, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            try:
                return _read_frames(file, frames, style)
            except UnidentifiedImageError:
                return _read_other(file, style)
    except UnidentifiedImageError as error:
        raise UndecodableError(_name_content(file)) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UndecodableError(TOO_LARGE) from error
    except DECODING_ERRORS as error:
        raise UndecodableError(f"cannot be decoded: {_reason(error)}") from error


def _read_other(file: BinaryIO, style: ReadStyle) -> Decoded:
    from hookcli.images.intensities import draw  # imports numpy, which takes 0.1 s
    from hookcli.images.other_files import read_dicom, read_tiff

    file.seek(0)
    start = file.read(132)
    if start[128:] != b"DICM" and not start.startswith(_TIFF):
        raise UnidentifiedImageError
    read = read_dicom if start[128:] == b"DICM" else read_tiff
    file.seek(0)
    values, samples, pages = read(file, style.page if isinstance(style.page, int) else 0)
    picture, found = draw(values, style, samples)
    return Decoded([picture], 1 if isinstance(style.page, int) else pages, found)


def is_picture(head: bytes) -> bool:
    is_unread = any(re.match(begin, head) for begin in _UNREAD)
    return bool(_PICTURE.match(head) or _HEIC.match(head)) or is_unread or head.startswith(_TIFF)


def _name_content(file: BinaryIO) -> str:
    file.seek(0)
    head = file.read(PICTURE_HEAD)
    if head[:2] == b"\x1f\x8b":  # gzip
        with contextlib.suppress(zlib.error):
            head = zlib.decompressobj(31).decompress(head, PICTURE_HEAD)
    if _HEIC.match(head):
        is_damaged = find_spec("pillow_heif") is not None
        return "is a HEIC picture" + (": its data is damaged" if is_damaged else _NEEDS_HEIF)
    for begin, name in _UNREAD.items():
        if re.match(begin, head):
            return f"is {name} picture, which cannot be read: convert it to PNG or TIFF"
    found = (what for begin, what in _OTHER_KINDS.items() if re.match(begin, head, re.DOTALL))
    return next(found, "is not a readable image")


def _to_upright(
    image: ImageFile, file: BinaryIO, style: ReadStyle
) -> tuple[Picture, Intensities | None]:
    stored: Any = image.tile[0].args if image.tile else ""
    image.load()
    low = _read_low_bytes(image, file, stored if isinstance(stored, str) else str(stored[0]))
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if not style.bands:
        picture, found = to_rgb(image, style, low)
        return _turn(picture, orientation), found
    from hookcli.images.intensities import draw
    from hookcli.images.other_files import turn

    plain: Image.Image = image
    if image.mode not in _WITH_BANDS:
        plain = image.convert("RGBA" if image.has_transparency_data else "RGB")
    samples = samples_of_image(plain)
    return draw(turn(values_of(plain, low, samples), orientation), style, samples)


def _turn(picture: Image.Image, orientation: int) -> Image.Image:
    picture.getexif()[ExifTags.Base.Orientation] = orientation
    ImageOps.exif_transpose(picture, in_place=True)
    return picture


def _read_frames(file: BinaryIO, frames: int, style: ReadStyle) -> Decoded:
    with _open_raster(file) as image:
        tags: Any = getattr(image, "tag_v2", {})
        is_apart = tags.get(_PLANAR) == 2 and max(tags.get(_BITS, (8,))) > 8
        if is_apart or _UNSPECIFIED in tags.get(_EXTRA_SAMPLES, ()):
            raise UnidentifiedImageError  # Pillow takes bytes for values, or ignores bands
        if tags.get(_SUBFILE) == 1 and style.page is None:
            raise UndecodableError("begins with a preview, as raw photos do: convert it to TIFF")
        counts = style.page is not None or (frames > 1 or image.format in _PAGED)
        pages = getattr(image, "n_frames", 1) if counts else 1
        if isinstance(style.page, int):
            check_page(style.page, pages)
            image.seek(style.page)
            pages = 1
        check_size(*image.size)
        _mend_transparency(image)
        drawn = _decode_frames(image, file, style, spread_evenly(pages, min(pages, frames)))
    found = [each for _, each in drawn if each is not None]
    if len(drawn) > 1:
        check_shared(found)
    return Decoded([picture for picture, _ in drawn], pages, join_intensities(found))


def _read_low_bytes(image: ImageFile, file: BinaryIO, stored: str) -> Image.Image | None:
    """Return a picture of the lower bytes of 16-bit colours; ``image`` has only the higher bytes.

    The result is None if the file has no 16-bit colours. ``stored`` is Pillow's name for the mode
    of the values in the file, such as ``RGB;16B``.
    """
    # With the mode of the other byte order, Pillow decodes the lower bytes. Grey with transparency
    # has no such mode, and is read as RGBA, as four bytes.
    if image.mode not in ("RGB", "RGBA") or ";16" not in stored:
        return None
    is_grey, offset = stored.startswith("LA"), file.tell()
    name = "RGBA" if is_grey else stored[:-1] + ("L" if stored.endswith("B") else "B")
    with _open_raster(file) as other:
        other.seek(image.tell())
        for number, tile in enumerate(other.tile):
            args: Any = tile.args
            args = name if isinstance(args, str) else (name, *args[1:])
            other.tile[number] = tile._replace(args=args)
        other.load()
    file.seek(offset)
    if not is_grey:
        return other
    _, low, _, low_alpha = other.split()
    return Image.merge("RGBA", (low, low, low, low_alpha))


def _mend_transparency(image: ImageFile) -> None:
    """Scale the transparent grey value in a PNG's ``info``; Pillow scales only the pixels."""
    # Pillow expands grey of 2 and 4 bits. It reduces colours of 16 bits, and the reduced pixels do
    # not show which of them were transparent.
    transparent = image.info.get("transparency")
    if image.format != "PNG" or transparent is None or not image.tile:
        return
    stored = image.tile[0].args
    if stored in _WIDENED:
        image.info["transparency"] = transparent * _WIDENED[stored]
    elif stored == "RGB;16B":
        raise UndecodableError("has a transparent colour of 16 bits, which cannot be read")


def _decode_frames(
    image: ImageFile, file: BinaryIO, style: ReadStyle, pages: Sequence[int]
) -> list[tuple[Picture, Intensities | None]]:
    drawn = [_to_upright(image, file, style)]
    for page in pages[1:]:
        try:
            image.seek(page)
            check_size(*image.size)
            drawn.append(_to_upright(image, file, style))
        except DECODING_ERRORS:
            break
    return drawn


def _open_raster(file: BinaryIO) -> ImageFile:
    """Open an image with Pillow; try common formats first, since loading all formats is slow."""
    file.seek(0)
    Image.preinit()
    try:
        return Image.open(file, formats=_raster_formats())
    except UnidentifiedImageError:
        Image.init()
        file.seek(0)
        if _HEIC.match(file.read(12)):
            with contextlib.suppress(ImportError):
                from pillow_heif import register_heif_opener

                register_heif_opener()
        return Image.open(file, formats=_raster_formats())


def _raster_formats() -> list[str]:
    return [name for name in Image.OPEN if name not in _LEFT_OUT]


def _reason(error: Exception) -> str:
    text = (getattr(error, "strerror", None) or str(error)).strip().splitlines()
    if not text or _UNREADABLE.search(text[0]):
        return "its data is damaged or in an unknown format"
    return text[0][:120]


@functools.cache
def image_suffixes() -> tuple[str, ...]:
    Image.init()
    readable = Image.OPEN.keys() - _NO_PICTURES
    suffixes = Image.registered_extensions().items()
    return (*_OTHERS, *sorted(suffix for suffix, kind in suffixes if kind in readable))
