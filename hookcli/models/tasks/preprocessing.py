"""The conversion of pictures to the pixels that a model's weights expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.models.tasks.transform_words import describe_transform
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image
    from torch import Tensor

    from hookcli.models.tasks.fixed_size import FixedSize
    from hookcli.models.tasks.presets import Chosen
    from hookcli.models.tasks.task import Task

COLOURS = 3
# In units of the short side. Resizing a longer picture could fill the memory. If the transform
# crops, the picture's middle is cut out first, which shifts it by less than a pixel; a picture that
# would be shown as a whole is refused.
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How an image becomes pixels.

    Attributes:
        task: the model's task.
        chosen: the transform.
        channels: the number of channels that the network accepts; None if it is not known, as for
            models of the user's own.
        fixed: the only size that the network accepts; None if it accepts several.
        grey: the network takes pictures of one channel, the brightness.
    """

    task: Task
    chosen: Chosen
    channels: int | None = COLOURS
    fixed: FixedSize | None = None
    grey: bool = False

    @property
    def words(self) -> str:
        """The transform in words, on one line."""
        return "turned grey, " * self.grey + describe_transform(self.chosen.transform)

    @property
    def nominal_shape(self) -> tuple[int, ...]:
        """The shape of the pixels of an image of usual size, with the leading axis 1."""
        _, crop, size = self.chosen
        height, width = crop or ((size, size) if size is not None else self.task.nominal)
        return self.task.shape(1 if self.grey else self.channels or COLOURS, height, width)

    def refuse(self, picture: Image.Image) -> str:
        """Return why this network cannot be given ``picture``; empty if it can."""
        if self.chosen.crop is None and _is_long(picture):
            return f"is {picture.width} by {picture.height} pixels, too thin for this network"
        return ""

    def refuse_pixels(self, shape: Sequence[int]) -> str:
        """Return why the pixels of a tensor file do not fit this network; empty if they do.

        Args:
            shape: the shape (C, H, W) of the pixels, which are used unchanged.
        """
        height, width = shape[-2:]
        if self.fixed is not None and not self.fixed.takes(height, width):
            wanted = shape_text((self.channels or shape[0], self.fixed.height, self.fixed.width))
        elif self.channels is not None and shape[0] != self.channels:
            wanted = f"{self.channels} channel{'s' * (self.channels != 1)}"
        else:
            return ""
        return f"is {shape_text(shape)}: this network takes {wanted}"

    def to_pixels(self, pictures: Sequence[Image.Image]) -> Tensor:
        """Return the pixels of one image.

        They are (3, H, W), or (1, H, W) for a network that takes grey pictures; for video a clip
        (3, T, H, W); for optical flow a pair (2, 3, H, W).

        Args:
            pictures: upright RGB pictures: one, or the frames of a clip, or the two of a pair.
        """
        transform, crop, size = self.chosen
        pictures = [_crop_long(picture) if crop else picture for picture in pictures]
        if self.grey:
            pictures = [picture.convert("L") for picture in pictures]
        return self.task.to_pixels(pictures, transform, size)

    def describe(self, pictures: Sequence[Image.Image], count: int) -> str:
        """Return what the image was turned into before the transform; empty if it was not changed.

        Args:
            pictures: the pictures that ``to_pixels`` takes; none for pixels that are used
                unchanged.
            count: how many pictures the image has; ``pictures`` may be some of them.
        """
        _, crop, size = self.chosen
        if made := self.task.describe(pictures, count, size):
            return made
        is_cut = crop is not None and any(map(_is_long, pictures))
        return "the middle of a very long picture, cut out before it was resized" if is_cut else ""


def _crop_long(picture: Image.Image) -> Image.Image:
    """Return the middle of a very long picture, and any other picture unchanged.

    A transform that crops would leave no more than the middle of it.
    """
    if not _is_long(picture):
        return picture
    longest = _LONGEST * min(picture.size)
    width, height = min(picture.width, longest), min(picture.height, longest)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def _is_long(picture: Image.Image) -> bool:
    return max(picture.size) > _LONGEST * min(picture.size)
