"""Convert pictures of any mode to 8-bit RGB on a white background, some rows at a time."""
# Pillow would clip values of more than 8 bits or drop their lower bytes, and ignores some tags.

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from hookcli.images.style import DECODING_ERRORS, PLAIN, ReadStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookcli.images.intensities import Array, Samples
    from hookcli.records.images import Intensities

BAND = 1 << 20  # pixels
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339  # tags of TIFF 6.0
_WHITE_IS_ZERO, _UNSIGNED, _SIGNED = 0, (1,), (2,)


def to_rgb(
    image: Image.Image, style: ReadStyle = PLAIN, low: Image.Image | None = None
) -> tuple[Image.Image, Intensities | None]:
    """Return ``image`` as RGB on a white background, and the range of values that became 0 to 255.

    The range is None for unsigned values of 8 bits, which are not scaled. ``low`` has the lower
    bytes of 16-bit colours, whose higher bytes are in ``image``.
    """
    found = None
    if low is not None or image.mode in _DEEP or _is_signed(image):
        image, found = _scale(image, style, low)
    if image.has_transparency_data:
        return _convert(image, _lay_on_white), found
    if image.mode == "RGB":
        return image.copy(), found
    return _convert(image, lambda band: band.convert("RGB")), found


def _scale(
    image: Image.Image, style: ReadStyle, low: Image.Image | None
) -> tuple[Image.Image, Intensities | None]:
    from hookcli.images.intensities import scale_rows  # imports numpy, which takes 0.1 s

    samples = samples_of_image(image)
    colours = len(image.getbands()) - (image.mode in ("LA", "RGBA"))

    def rows() -> Iterator[Array]:
        for box in _boxes(image):
            yield values_of(image.crop(box), low and low.crop(box), samples)[..., :colours]

    made, found = scale_rows(rows, (image.height, image.width, colours), style, samples)
    picture = Image.fromarray(made if colours > 1 else made[..., 0])
    if colours < len(image.getbands()):
        picture.putalpha(image.getchannel("A"))
    elif isinstance(transparent := image.info.get("transparency"), int):
        made[values_of(image, None, samples) == transparent] = 255
        picture = Image.fromarray(made[..., 0])
    return picture, found


def samples_of_image(image: Image.Image) -> Samples:
    """Return which values mean black and white in an image, as its mode and its TIFF tags show.

    Call this with the opened image, because copies of an image lack the tags.
    """
    from hookcli.images.intensities import Samples, samples_of

    tags = getattr(image, "tag_v2", {})
    bits, sign = tags.get(_BITS), tags.get(_SAMPLE_FORMAT, _UNSIGNED)
    is_white_zero = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    if _is_signed(image):
        return Samples(None, is_white_zero, "i1")
    if image.mode == "I" and bits == (32,) and sign == _UNSIGNED:
        return Samples(None, is_white_zero, "u4")
    wide = "u" if getattr(image, "format", "") == "PPM" else "i"
    kind = {"F": "f", "I": wide}.get(image.mode, "u")
    is_deep = image.mode in _DEEP  # Pillow itself inverts other pictures
    return samples_of(kind, 12 if bits == (12,) else 16, is_white_zero=is_white_zero and is_deep)


def has_natural_range(file: str) -> bool:
    if not Path(file).is_file():
        return True
    errors = contextlib.suppress(*DECODING_ERRORS, Image.DecompressionBombError)
    with errors, warnings.catch_warnings(action="ignore"), Image.open(file) as image:
        return image.mode != "F" and samples_of_image(image).natural is not None
    return False


def _is_signed(image: Image.Image) -> bool:
    """Return whether a TIFF file has signed integers of 8 bits, which Pillow reads as unsigned."""
    return image.mode == "L" and getattr(image, "tag_v2", {}).get(_SAMPLE_FORMAT) == _SIGNED


def values_of(image: Image.Image, low: Image.Image | None, samples: Samples) -> Array:
    """Return the values (H, W, C) of a picture; ``low`` has the lower bytes of 16-bit colours."""
    import numpy as np

    values = np.atleast_3d(np.asarray(image))
    if low is not None:
        values = values.astype("u2") << 8 | np.atleast_3d(np.asarray(low))
    return values.view(samples.view or values.dtype)


def _lay_on_white(image: Image.Image) -> Image.Image:
    if image.mode == "La":
        image = image.convert("LA")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _convert(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    page = Image.new("RGB", image.size)
    for box in _boxes(image):
        page.paste(convert(image.crop(box)), box[:2])
    return page


def _boxes(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    rows = max(1, BAND // max(1, image.width))
    for top in range(0, image.height, rows):
        yield 0, top, image.width, min(top + rows, image.height)
