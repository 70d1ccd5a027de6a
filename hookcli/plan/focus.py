"""Where the box of ``--focus`` is in what the network sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookcli.errors import RequestError
from hookcli.images.read import ImageFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.config import Box
    from hookcli.images.read import ImageSource
    from hookcli.models.load import LoadedModel

_LEAST_FOCUS = 0.25  # of a pixel of what the network sees


def find_focus(
    box: Box | None, loaded: LoadedModel, sources: Sequence[ImageSource | ImageFile]
) -> Tensor | None:
    """What of the network's view is inside the box of ``--focus``, and what outside: (2, H, W).

    Raises:
        RequestError: it is outside of the image, or is cut away.
    """
    if box is None:
        return None
    if len(sources) != 1 or isinstance(sources[0], ImageFile):
        raise RequestError("--focus is a box in one image", "give one image")
    source = sources[0]
    left, top, width, height = box
    if left + width > source.size[0] or top + height > source.size[1]:
        raise RequestError(
            f"--focus {left},{top},{width},{height} is not inside the image, which is "
            f"{source.size[0]} by {source.size[1]} pixels"
        )
    shares = loaded.find_box(source.size, box, as_pixels=source.pixels is not None)
    if float(shares[1].max()) < _LEAST_FOCUS:
        raise RequestError(
            "--focus is all that the network sees, and leaves nothing to compare with"
        )
    if float(shares[0].max()) < _LEAST_FOCUS:
        raise RequestError(
            f"--focus {left},{top},{width},{height} is cut away: the network sees the middle of the image",
            "choose a box nearer to the middle, or another --resize",
        )
    return shares


def describe_focus(box: Box | None, shares: Tensor) -> dict[str, Any]:
    """The box as given, and its left, top, width and height as shares of the picture that is shown."""
    inside = shares[0] >= _LEAST_FOCUS
    rows, columns = inside.any(1).nonzero().flatten(), inside.any(0).nonzero().flatten()
    (top, bottom), (left, right) = rows[[0, -1]].tolist(), columns[[0, -1]].tolist()
    height, width = inside.shape
    seen = (left / width, top / height, (right + 1 - left) / width, (bottom + 1 - top) / height)
    return {"box": box, "seen": seen}
