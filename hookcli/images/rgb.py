"""Pictures of any mode converted to 8-bit RGB, one band of rows at a time.

A picture takes up to four bytes per pixel, and laying a transparent picture on white takes several
such pictures. For a whole large picture, this could fill the memory; a band needs little.

Greys of more than 8 bits are not left to Pillow, which clips 16-bit values to white and ignores the
tags of a TIFF that give the values a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    _Numbers: TypeAlias = NDArray[np.integer | np.floating]
    _Scale: TypeAlias = tuple[float, float]  # the pixel values that become black and white

BAND = 1 << 20  # pixels
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339  # tags of TIFF 6.0
_WHITE_IS_ZERO, _UNSIGNED = 0, (1,)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an RGB copy of ``image``; a transparent picture is laid on white.

    Greys of more than 8 bits are scaled to 8 bits. The pixels of ``image`` must be loaded.
    """
    samples = _samples_of(image)
    if samples is not None:
        scale = _find_scale(_list_bands(image), samples)
        return _convert(image, lambda band: _grey_to_rgb(band, samples, scale))
    if image.has_transparency_data:
        return _convert(image, _lay_on_white)
    if image.mode == "RGB":
        return image.copy()
    return _convert(image, lambda band: band.convert("RGB"))


def _lay_on_white(image: Image.Image) -> Image.Image:
    if image.mode == "La":
        image = image.convert("LA")
    layer = image.convert("RGBA")
    page = Image.new("RGBA", layer.size, "white")
    return Image.alpha_composite(page, layer).convert("RGB")


def _convert(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Return the whole picture as RGB, converted by ``convert`` one band of rows at a time.

    ``convert`` must return the band in mode RGB, and treat each pixel by itself.
    """
    page = Image.new("RGB", image.size)
    top = 0
    for band in _list_bands(image):
        page.paste(convert(band), (0, top))
        top += band.height
    return page


def _list_bands(image: Image.Image) -> Iterator[Image.Image]:
    """Split the picture into bands of at most ``BAND`` pixels, but at least one row each."""
    rows = max(1, BAND // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


@dataclass(frozen=True, slots=True)
class _Samples:
    """The meaning of the pixel values in a grey picture of more than 8 bits.

    Attributes:
        white: the upper end of the scale of integers: 4095 for 12 bits, 65535 for 16 or 32 bits;
            None for floats.
        is_white_zero: whether the smallest value is white and the largest value black.
        is_unsigned: whether the values are unsigned integers of 32 bits, which Pillow reads as
            signed integers.
    """

    white: int | None = 65535
    is_white_zero: bool = False
    is_unsigned: bool = False


def _samples_of(image: Image.Image) -> _Samples | None:
    """Return the meaning of the pixel values of a grey picture of more than 8 bits.

    Return None for any other picture. ``image`` must be the object that Pillow opened, because a
    copy does not have the tags of the file.
    """
    tags = getattr(image, "tag_v2", {})
    bits, sign = tags.get(_BITS), tags.get(_SAMPLE_FORMAT, _UNSIGNED)
    if image.mode not in _DEEP:
        return None
    white = None if image.mode == "F" else 65535
    return _Samples(
        white=4095 if bits == (12,) else white,
        is_white_zero=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
        is_unsigned=bits == (32,) and sign == _UNSIGNED,
    )


def _find_scale(bands: Iterable[Image.Image], samples: _Samples) -> _Scale:
    """Return the pixel values that become black and white, for the bands of one picture.

    Black is 0. White is 65535 for integers of 16 or 32 bits, 4095 for integers of 12 bits, and 1 or
    255 for floats, depending on the largest float. If a value of the picture lies outside this
    range, black and white are the smallest and the largest finite value instead.
    """
    import numpy as np  # takes 0.1 s, and only such pictures need it

    low, high, white = np.inf, -np.inf, samples.white
    for band in bands:
        numbers = _numbers(band, samples)
        finite = numbers if white else numbers[np.isfinite(numbers)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if low > high:  # there is no finite number
        low = high = 0.0
    white = white or (1 if high <= 1 else 255)
    return (0.0, float(white)) if low >= 0 and high <= white else (low, high)


def _grey_to_rgb(image: Image.Image, samples: _Samples, scale: _Scale) -> Image.Image:
    """Return a grey picture of more than 8 bits as RGB with 8 bits per channel.

    Pixels whose value means transparency become white.
    """
    values = _numbers(image, samples)
    grey = _to_bytes(values, scale)
    if samples.is_white_zero:
        grey = 255 - grey
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[values == transparent] = 255
    return Image.fromarray(grey).convert("RGB")


def _numbers(image: Image.Image, samples: _Samples) -> _Numbers:
    import numpy as np

    values = np.asarray(image)
    return values.view(np.uint32) if samples.is_unsigned else values


def _to_bytes(numbers: _Numbers, scale: _Scale) -> NDArray[np.uint8]:
    import numpy as np

    black, white = scale
    scaled: NDArray[np.float64] = np.subtract(numbers, black, dtype=np.float64)
    scaled *= 255 / ((white - black) or 1.0)
    np.nan_to_num(scaled, copy=False, nan=0, posinf=255, neginf=0)
    scaled.round(out=scaled)
    scaled.clip(0, 255, out=scaled)
    return scaled.astype(np.uint8)
