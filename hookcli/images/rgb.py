"""Pictures of any mode converted to 8-bit RGB, one band of rows at a time.

A picture takes up to four bytes per pixel, and putting transparency on white takes several such
pictures. For a whole large picture they would fill the memory; for a band they are small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from hookcli.images import grey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BAND = 1 << 20  # pixels


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an RGB copy of ``image``, whose pixels must be loaded, with transparency put on white.

    Greys of more than 8 bits are scaled to 8; see ``grey``.
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
    """Return the whole picture converted by ``convert``, which treats each pixel separately."""
    page = Image.new("RGB", image.size)
    top = 0
    for band in _list_bands(image):
        page.paste(convert(band), (0, top))
        top += band.height
    return page


def _list_bands(image: Image.Image) -> Iterator[Image.Image]:
    """Yield the picture in bands, each of as many rows as ``BAND`` pixels allow."""
    rows = max(1, BAND // max(1, image.width))
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))
