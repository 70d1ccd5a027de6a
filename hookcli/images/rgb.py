"""Pictures of any mode converted to 8-bit RGB, one band of rows at a time.

A picture takes up to four bytes per pixel, and laying a transparent picture on white takes several
such pictures. For a whole large picture, this could fill the memory; a band needs little.

Values of more than 8 bits are not left to Pillow, which clips them or drops their lower bytes, and
ignores the tags of a TIFF that give the values a meaning.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from PIL import Image

from hookcli.images.intensities import ReadStyle, Samples, measure, samples_of, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookcli.images.intensities import Numbers
    from hookcli.records.images import Intensities

BAND = 1 << 20  # pixels
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339  # tags of TIFF 6.0
_WHITE_IS_ZERO, _UNSIGNED, _SIGNED = 0, (1,), (2,)
_PLAIN = ReadStyle()


def to_rgb(
    image: Image.Image, style: ReadStyle = _PLAIN, low: Image.Image | None = None
) -> tuple[Image.Image, Intensities | None]:
    """Return an RGB copy of ``image``; a transparent picture is laid on white.

    The pixels of ``image`` must be loaded.

    Args:
        image: the picture as Pillow decodes it.
        style: how values of more than 8 bits become 8 bits.
        low: the lower bytes of a picture with 16 bits per colour, whose higher bytes are in
            ``image``; None for any other picture.

    Returns:
        The copy, and the range of its values; None if they have 8 bits.

    Raises:
        NoRangeError: the values have no natural range, and the picture is not alone.
    """
    samples = find_samples(image, low)
    if samples is not None:
        found = measure(
            lambda: (
                values_of(*band, samples)[..., : _colours(image)] for band in _pair(image, low)
            ),
            samples,
            style,
        )
        return _convert(image, functools.partial(_draw, samples=samples, found=found), low), found
    if image.has_transparency_data:
        return _convert(image, _lay_on_white), None
    if image.mode == "RGB":
        return image.copy(), None
    return _convert(image, lambda band, _: band.convert("RGB")), None


def _lay_on_white(image: Image.Image, _low: Image.Image | None = None) -> Image.Image:
    if image.mode == "La":
        image = image.convert("LA")
    layer = image.convert("RGBA")
    page = Image.new("RGBA", layer.size, "white")
    return Image.alpha_composite(page, layer).convert("RGB")


def _convert(
    image: Image.Image,
    convert: Callable[[Image.Image, Image.Image | None], Image.Image],
    low: Image.Image | None = None,
) -> Image.Image:
    """Return the whole picture as RGB, converted by ``convert`` one band of rows at a time.

    ``convert`` gets the same band of ``image`` and of ``low``. It must return the band in mode RGB,
    and treat each pixel by itself.
    """
    page = Image.new("RGB", image.size)
    top = 0
    for band in _pair(image, low):
        page.paste(convert(*band), (0, top))
        top += band[0].height
    return page


def _pair(
    image: Image.Image, low: Image.Image | None
) -> Iterator[tuple[Image.Image, Image.Image | None]]:
    """Split both pictures into bands of at most ``BAND`` pixels, but at least one row each."""
    rows = max(1, BAND // max(1, image.width))
    for top in range(0, image.height, rows):
        box = (0, top, image.width, min(top + rows, image.height))
        yield image.crop(box), None if low is None else low.crop(box)


def _colours(image: Image.Image) -> int:
    """Return how many bands of a picture are colours, not transparency."""
    return len(image.getbands()) - (image.mode in ("LA", "RGBA"))


def find_samples(image: Image.Image, low: Image.Image | None = None) -> Samples | None:
    """Return the meaning of the values of a picture if they need a range, else None.

    ``image`` must be the object that Pillow opened, because a copy does not have the tags of the
    file. ``low`` has the lower bytes of colours.
    """
    if low is not None:
        return samples_of("u", 16)
    tags = getattr(image, "tag_v2", {})
    bits, sign = tags.get(_BITS), tags.get(_SAMPLE_FORMAT, _UNSIGNED)
    is_white_zero = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    if image.mode == "L" and bits == (8,) and sign == _SIGNED:
        return Samples(None, is_white_zero=is_white_zero, view="i1")
    if image.mode not in _DEEP:
        return None
    if image.mode == "I" and bits == (32,) and sign == _UNSIGNED:
        return Samples(None, is_white_zero=is_white_zero, view="u4")
    if image.mode == "I" and getattr(image, "format", "") == "PPM":  # scaled to 16 bits by Pillow
        return samples_of("u", 16)
    kind = {"F": "f", "I": "i"}.get(image.mode, "u")
    return samples_of(kind, 12 if bits == (12,) else 16, is_white_zero=is_white_zero)


def values_of(image: Image.Image, low: Image.Image | None, samples: Samples | None) -> Numbers:
    """Return the values (H, W, C) of a picture, or of one of its bands of rows."""
    import numpy as np  # takes 0.1 s, and only such pictures need it

    values = np.atleast_3d(np.asarray(image))
    if low is not None:
        values = values.astype("u2") << 8 | np.atleast_3d(np.asarray(low))
    return values.view(samples.view) if samples is not None and samples.view else values


def _draw(
    image: Image.Image, low: Image.Image | None, samples: Samples, found: Intensities
) -> Image.Image:
    """Return a band of rows of more than 8 bits as RGB with 8 bits per colour.

    Pixels whose value means transparency become white.
    """
    values = values_of(image, low, samples)[..., : _colours(image)]
    drawn = to_bytes(values, found, samples)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int) and low is None:
        drawn[values == transparent] = 255
    picture = Image.fromarray(drawn if drawn.shape[-1] > 1 else drawn[..., 0])
    if image.mode in ("LA", "RGBA"):
        picture.putalpha(image.getchannel("A"))
        return _lay_on_white(picture)
    return picture.convert("RGB")
