"""Image files as upright RGB pictures, or the reason why a file is none.

Pillow alone: no torch, so that a wrong path is reported before anything heavy is imported. An image
object that has raised once is never used again: its second try returns partial pixels.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageOps, UnidentifiedImageError

from hookcli.files import safe_name
from hookcli.results import SkippedImage

if TYPE_CHECKING:
    from collections.abc import Sequence

_DECODING_ERRORS = (OSError, ValueError, TypeError, SyntaxError, NotImplementedError)
_MOST_ASPECT = 1000  # resized by its short side, a longer picture could fill the memory
_VECTOR_FORMATS = ("EPS", "WMF", "PDF")  # EPS starts Ghostscript


@dataclass(frozen=True, slots=True)
class ImageSource:
    """A decoded image.

    Attributes:
        key: safe as a file name, unique in the run.
        file: as the user gave it.
        sha256: of the file's bytes.
        picture: upright, RGB, 8 bits a channel.
    """

    key: str
    file: str
    sha256: str
    picture: Image.Image


def read_images(files: Sequence[str]) -> tuple[list[ImageSource], list[SkippedImage]]:
    """Decode ``files`` in order; what cannot be decoded comes back as skipped, with the reason."""
    sources: list[ImageSource] = []
    skipped: list[SkippedImage] = []
    keys: set[str] = set()
    for file in files:
        read = _read_image(file)
        if isinstance(read, str):
            skipped.append(SkippedImage(file, read))
            continue
        picture, digest = read
        sources.append(ImageSource(_unique_key(file, keys), file, digest, picture))
    return sources, skipped


def to_upright_rgb(image: Image.Image) -> Image.Image:
    """The first frame, turned as its EXIF data says, transparency on white, as 8-bit RGB.

    Greys of more than 8 bits are scaled to 8: Pillow's own conversion would clip them to white.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        image = image.convert("I")
    if image.mode == "I":
        image = image.point(lambda value: value * (1 / 257) + 0).convert("L")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return image.convert("RGB")


def _read_image(file: str) -> tuple[Image.Image, str] | str:
    """The picture and the file's hash, or why there is none."""
    path = Path(file)
    try:
        if path.is_dir():
            return "is a directory"
        if path.exists() and not path.is_file():
            return "is not a regular file"
        data = path.read_bytes()
        if not data:
            return "is empty"
        digest = hashlib.sha256(data).hexdigest()
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning)
            with _open_raster(data) as image:
                if max(image.size) > _MOST_ASPECT * min(image.size):
                    return f"is {image.width} by {image.height} pixels, too thin to show a network"
                return to_upright_rgb(image), digest
    except FileNotFoundError:
        return "does not exist"
    except UnidentifiedImageError:
        return "is not an image that can be read"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return "has more pixels than is safe to decode"
    except _DECODING_ERRORS as error:
        text = (getattr(error, "strerror", None) or str(error)).strip().splitlines()
        return f"cannot be decoded: {text[0] if text else type(error).__name__}"


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


def _unique_key(file: str, keys: set[str]) -> str:
    stem = safe_name(Path(file).stem)
    key, number = stem, 2
    while key.lower() in keys:
        key = f"{stem}-{number}"
        number += 1
    keys.add(key.lower())
    return key
