"""Decode a file to upright RGB pictures of 8 bits per channel, whatever the file's mode.

An image object that has raised an exception is never used again: a second try would return partial
pixels. At most two full-size pictures are in memory at a time: the input and the result of a step.
The largest allowed picture takes 340 MB. Pillow reads the file in pieces while decoding, if the
format allows this.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import re
import struct
import threading
import warnings
import zlib
from typing import TYPE_CHECKING

from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError

from hookcli.images.rgb import to_rgb
from hookcli.records.frames import spread_evenly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer
    from PIL.ImageFile import ImageFile

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
_VECTOR_FORMATS = ("EPS", "WMF", "PDF")  # to open EPS, Pillow starts Ghostscript
# Formats of drawings, films, and weather and science data, of which Pillow reads only headers.
_NO_PICTURES = {"EPS", "WMF", "MPEG", "BUFR", "GRIB", "HDF5"}
_JPEG_TOO = ".mpo"  # to Pillow a format of its own, but Pillow's JPEG reader opens it
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_VIDEO = (b"\x1aE\xdf\xa3", b"\0\0\x01\xba", b"\0\0\x01\xb3")  # Matroska, MPEG
_FRAMES = "ffmpeg -i FILE frame-%04d.png"
_WIDENED = {"L;2": 85, "L;4": 17}  # Pillow's names, and the factor by which Pillow expands them
_UNREADABLE = re.compile(
    r"^-?\d+$|invalid literal|Invalid argument|decoder error|unpack|b['\"]|0x|<"
)
# Warning filters and file descriptor 2 belong to the process: if two threads replaced them at once,
# one could restore the other's replacement, and stderr would be lost for good.
_ALONE = threading.Lock()
_MOST_ASPECT = 10_000  # resizing a longer picture by its short side could fill the memory
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # keys are orientations of EXIF 2.3
_BUFFER = 1 << 16  # bytes
_MOST_READ = 256 << 20  # bytes; a larger compressed TIFF is not read into memory

logging.getLogger("PIL").addHandler(logging.NullHandler())  # keeps Pillow's warnings off stderr


class UndecodableError(Exception):
    """A file is not a usable image; the text of the error says why."""


def decode(file: io.BufferedIOBase, frames: int = 1) -> tuple[list[Image.Image], int]:
    """Return the pictures in a file, and the number of frames in the file.

    There is one picture, or several frames of an animation. ``file`` is read from the beginning,
    and stays open.

    Args:
        file: the content of the file.
        frames: the largest number of evenly spaced frames to return. If it is 1, the frames are not
            counted, and the number of frames is always 1.

    Raises:
        UndecodableError: the file cannot be decoded.
    """
    try:
        with _ALONE, warnings.catch_warnings(), _silent_tiff(file):
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            stored, count = _read_frames(file, frames)
            return [_turn(*stored.pop(0)) for _ in range(len(stored))], count
    except UnidentifiedImageError as error:
        raise UndecodableError(_name_content(file)) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UndecodableError("has too many pixels to decode safely") from error
    except DECODING_ERRORS as error:
        raise UndecodableError(f"cannot be decoded: {_reason(error)}") from error


def _name_content(file: io.BufferedIOBase) -> str:
    """Return what a file is that Pillow cannot read, with advice on how to convert the file.

    The first bytes show the type of the file. The returned text continues a sentence that begins
    with the name of the file.
    """
    file.seek(0)
    start = file.read(12)
    if start[4:8] == b"ftyp" and start[8:11] in (b"hei", b"hev", b"mif", b"msf"):
        return "is a HEIC picture, which Pillow cannot read: convert it to JPEG or PNG"
    is_video = start[4:8] == b"ftyp" and not start[8:].startswith(b"avi")  # avif, a damaged picture
    if is_video or start[:4] in _VIDEO or start[8:] == b"AVI ":
        return f"is a video, not an image: save its frames: {_FRAMES}"
    if start[:4] == b"%PDF":
        return "is a PDF, not an image: save its pages as images: pdftoppm -png FILE page"
    return "is not a readable image"


def _to_stored_rgb(image: Image.Image) -> tuple[Image.Image, int]:
    """Return the picture as RGB, and its EXIF orientation.

    The picture is not turned upright yet. The orientation of an upright picture is 1.
    """
    image.load()
    return to_rgb(image), image.getexif().get(ExifTags.Base.Orientation, 1)


def _turn(picture: Image.Image, orientation: int) -> Image.Image:
    turn = _TURNS.get(orientation)
    return picture if turn is None else picture.transpose(turn)


def _read_frames(file: io.BufferedIOBase, frames: int) -> tuple[list[tuple[Image.Image, int]], int]:
    """Return up to ``frames`` pictures, and the number of frames in the file.

    The pictures are not turned upright yet; each comes with its EXIF orientation. If ``frames`` is
    1, the number of frames is always 1. Pillow's image object is closed, which frees memory.
    """
    with _open_raster(io.BufferedReader(_Unmapped(file), _BUFFER)) as image:
        if max(image.size) > _MOST_ASPECT * min(image.size):
            raise UndecodableError(
                f"is {image.width} by {image.height} pixels, too thin to show a network"
            )
        count = getattr(image, "n_frames", 1) if frames > 1 else 1
        if count == 1 and hasattr(image, "_decoder"):
            _drop_decoder(image)
        _mend_transparency(image)
        return _decode_frames(image, count, frames), count


def _mend_transparency(image: ImageFile) -> None:
    """Convert the transparent value of a PNG to 8 bits, as Pillow converts the pixels.

    A PNG can declare one grey value or colour as transparent. Pillow expands grey pixels of 2 and 4
    bits to 8 bits, and reduces colours of 16 bits to 8 bits, but does not convert the transparent
    value.

    Raises:
        UndecodableError: the transparent value is a colour of 16 bits. The pixels of 8 bits do not
            show which pixels had this colour.
    """
    transparent = image.info.get("transparency")
    if image.format != "PNG" or transparent is None or not image.tile:
        return
    stored = image.tile[0].args
    if stored in _WIDENED:
        image.info["transparency"] = transparent * _WIDENED[stored]
    elif stored == "RGB;16B":
        raise UndecodableError("has a transparent colour of 16 bits, which cannot be read")


def _drop_decoder(image: ImageFile) -> None:
    """Let a WebP or AVIF image release its decoder as soon as its only frame is decoded.

    Otherwise, the decoder would keep copies of the picture in memory.
    """

    def load_prepare() -> None:  # Pillow calls this after decoding the frame
        del image.__dict__["_decoder"], image.__dict__["load_prepare"]
        image.load_prepare()

    image.__dict__["load_prepare"] = load_prepare


def _decode_frames(image: ImageFile, count: int, wanted: int) -> list[tuple[Image.Image, int]]:
    """Return up to ``wanted`` evenly spaced frames, each with its EXIF orientation.

    The frames are not turned upright yet. ``count`` is the number of frames in the image. The list
    ends before a frame that cannot be decoded. If the first frame cannot be decoded, the error is
    raised.
    """
    stored = [_to_stored_rgb(image)]
    for place in spread_evenly(count, min(count, wanted))[1:]:
        try:
            image.seek(place)
            stored.append(_to_stored_rgb(image))
        except DECODING_ERRORS:
            break
    return stored


class _Unmapped(io.RawIOBase):
    """A file that hides its descriptor, unless the file is very large.

    With the descriptor, libtiff would map the file into memory; if someone then truncated the file,
    the process would be killed. Without the descriptor, the whole file is read into memory, which
    is too much for a very large file.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        number = self._file.fileno()
        if os.fstat(number).st_size <= _MOST_READ:
            raise io.UnsupportedOperation
        return number

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._file.readinto(buffer)

    def readall(self) -> bytes:
        return self._file.read()


def _open_raster(file: io.BufferedReader) -> ImageFile:
    """Open the image; try Pillow's common formats first, since loading all formats takes long."""
    Image.preinit()
    try:
        return Image.open(file, formats=_raster_formats())
    except UnidentifiedImageError:
        Image.init()
        return Image.open(file, formats=_raster_formats())


def _raster_formats() -> list[str]:
    return [name for name in Image.OPEN if name not in _VECTOR_FORMATS]


def _reason(error: Exception) -> str:
    """Return the message of a decoding error, on one line.

    A message that only programmers understand is replaced.
    """
    text = (getattr(error, "strerror", None) or str(error)).strip().splitlines()
    if not text or _UNREADABLE.search(text[0]):
        return "its data is damaged or in an unknown format"
    return text[0][:120]


@contextlib.contextmanager
def _silent_tiff(file: io.BufferedIOBase) -> Iterator[None]:
    """Return a ``with`` block in which libtiff prints no messages about ``file`` on stderr.

    If ``file`` is not a TIFF file, the block changes nothing.
    """
    file.seek(0)
    if not file.read(len(_TIFF[0])).startswith(_TIFF) or _stands_for_stderr(file):
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


def _stands_for_stderr(file: io.BufferedIOBase) -> bool:
    """Return whether the file has descriptor 2, which a file can get only if stderr was closed.

    In this case, no message can reach the terminal.
    """
    try:
        return file.fileno() == 2
    except OSError:  # the file is in memory
        return False


@functools.cache
def image_suffixes() -> tuple[str, ...]:
    """Return the suffixes, in lower case, of files that Pillow can read as pictures."""
    Image.init()
    readable = Image.OPEN.keys() - _NO_PICTURES
    suffixes = Image.registered_extensions().items()
    return (_JPEG_TOO, *sorted(suffix for suffix, kind in suffixes if kind in readable))
