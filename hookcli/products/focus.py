"""Check the box of ``--focus``, and map it from the image to the network's input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.products.product import Product
from hookcli.records.report import FocusBox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.config import Box
    from hookcli.images.read import ImageContent, ImageSource
    from hookcli.networks.description import ModelDescription
    from hookcli.products.product import RunEnd

_LEAST_SHARE = 0.25  # a pixel counts as inside the box if this share of it is


class Focus(Product):
    def describe(self, end: RunEnd) -> dict[str, object]:
        box = self.scope.config.focus
        return {} if box is None or end.focus is None else {"focus": describe_focus(box, end.focus)}


def find_focus(
    box: Box | None, loaded: ModelDescription, sources: Sequence[ImageSource]
) -> Tensor | None:
    """Return the result of ``map_box`` for the only image; None if ``box`` is None.

    Raise a RequestError if there are several images, if the box leaves the image, or if the network
    sees too little inside or outside the box.
    """
    if box is None:
        return None
    if len(sources) != 1:
        raise RequestError("`focus` is a box in one image", "give one image")
    image = sources[0].read()
    left, top, width, height = box
    option = f"`focus` {left},{top},{width},{height}"
    if left + width > image.size[0] or top + height > image.size[1]:
        size = f"{image.size[0]} by {image.size[1]} pixels"
        raise RequestError(f"{option} is not inside the image, which is {size}")
    shares = map_box(loaded, image, box, option, _LEAST_SHARE)
    if float(shares[1].max()) < _LEAST_SHARE:
        what = "`focus` covers all that the network sees, and leaves nothing to compare with"
        raise RequestError(what)
    return shares


def map_box(
    loaded: ModelDescription, image: ImageContent, box: Box, option: str, least: float = 0
) -> Tensor:
    """Return how much of each pixel of the network's input is inside and outside a box.

    ``box`` is left, top, width and height in pixels of the image. The shares have the shape
    (2, H, W), and those inside come first. Raise a RequestError that names ``option`` if no pixel
    is inside, or if the largest share inside is below ``least``.
    """
    shares = loaded.find_box(image.size, box, as_pixels=image.pixels is not None)
    largest = float(shares[0].max())
    if largest == 0 or largest < least:
        what = f"{option} is cut away: the network sees the middle of the image"
        raise RequestError(what, "choose a place nearer to the middle, or a different `resize`")
    return shares


def describe_focus(box: Box, shares: Tensor) -> FocusBox:
    inside = shares[0] >= _LEAST_SHARE
    rows, columns = inside.any(1).nonzero().flatten(), inside.any(0).nonzero().flatten()
    (top, bottom), (left, right) = rows[[0, -1]].tolist(), columns[[0, -1]].tolist()
    height, width = inside.shape
    seen = (left / width, top / height, (right + 1 - left) / width, (bottom + 1 - top) / height)
    return FocusBox(box, seen)
