"""Pictures of any mode as 8-bit RGB, converted a band of rows at a time.

A picture takes up to four bytes a pixel in memory, and laying transparency on white takes several
such pictures: of a whole large one they would fill the memory, of a band they are small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from hookcli.images import grey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BAND = 1 << 20  # pixels


def to_rgb(image: Image.Image) -> Image.Image:
    """A picture of its own, transparency on white; ``image``, whose pixels are loaded, stays as it is.

    Greys of more than 8 bits are scaled to 8, see ``greys``.
    """
    samples = grey.samples_of(image)
    if samples is not None:
        scale = grey.find_scale(_list_bands(image), samples)
        return _convert(image, lambda band: grey.to_rgb(band, samples, scale))
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
    """What ``convert``, which looks at each pixel alone, makes of the whole picture."""
    page = Image.new("RGB", image.size)
    top = 0
    for band in _list_bands(image):
        page.paste(convert(band), (0, top))
        top += band.height
    return page


def _list_bands(image: Image.Image) -> Iterator[Image.Image]:
    """The rows of a picture, as many at a time as make a band."""
    rows = max(1, BAND // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))
