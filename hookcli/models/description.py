"""Facts about any model: how to prepare its images, and how to read its output."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import nn

from hookcli.models.inputs import draw_pixels
from hookcli.models.tasks import read_predictions
from hookcli.models.torchvision_import import torchvision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from hookcli.models.task import Preprocessing, Task
    from hookcli.records.images import Prediction
    from hookcli.records.runs import ModelInfo

_UNCHANGED = nn.Identity()  # represents a model that does not resize its pixels itself


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What hookcli must know of a model to prepare images and to read its output.

    Attributes:
        info: the recorded facts about the model.
        prepare: turns upright RGB pictures into pixels on the CPU.
        categories: the class names by index; empty if they are not known.
        first: returns the pixels (1, …) of the first usable image of the run, or None if there is
            none.
    """

    info: ModelInfo
    prepare: Preprocessing
    categories: tuple[str, ...] = ()
    first: Callable[[], Tensor | None] = lambda: None

    @property
    def task(self) -> Task:
        """The task of the model."""
        return self.prepare.task

    @property
    def knows_input(self) -> bool:
        """Whether hookcli knows what input the model takes."""
        return self.prepare.channels is not None

    def pixels_to_try(self) -> Tensor:
        """Return pixels (1, …) for trial forward passes: those of the first usable image.

        If there is no such image, the pixels are zeros of the usual size.
        """
        pixels = self.first()
        return self.convert(torch.zeros(self.prepare.nominal_shape) if pixels is None else pixels)

    def convert(self, pixels: Tensor) -> Tensor:
        """Return ``pixels`` on the model's device and in its dtype.

        If there is no module, ``pixels`` stays unchanged.
        """
        return pixels

    def seen(self, pixels: Tensor) -> Tensor:
        """Return the layers' input for pixels (N, …).

        If there is no module, this is ``pixels`` itself.
        """
        return pixels

    def normalisation(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return the means and the standard deviations of the normalization, one per colour."""
        return self.task.normalisation(_UNCHANGED, self.prepare.transform)

    def read(
        self, output: object, sizes: Sequence[tuple[int, int]] = ()
    ) -> list[tuple[Prediction, ...]]:
        """Return the predictions for each image; an empty list if the output has no known form."""
        return read_predictions(output, self.categories, sizes, self.task)

    def hash_code(self, score: str) -> dict[str, str]:
        """Return the sha256 of each source file of the user's model, keyed by file name.

        If ``score`` names a function of the user, its source file is included.
        """
        return {}

    def guard(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which hookcli reads the model's output."""
        return contextlib.nullcontext()

    def find_box(
        self, size: tuple[int, int], box: tuple[int, int, int, int], *, as_pixels: bool = False
    ) -> Tensor:
        """Return two masks (2, H, W) for the layers' input: the inside of a box, and the outside.

        The values are from 0 to 1. hookcli prepares a picture of a white box in the same way as the
        image, so that the box is resized and cropped like the image. Both masks are 0 at pixels
        that do not depend on the picture, such as padding.

        Args:
            size: the width and height of the image.
            box: left, top, width and height of the box in pixels of the image.
            as_pixels: whether the image is a tensor file, whose values are used unchanged.
        """
        left, top, width, height = box

        def see_box(colour: str, inside: str) -> Tensor:
            """Return the layers' input for one picture, without keeping the (large) picture."""
            picture = Image.new("RGB", size, colour)
            picture.paste(inside, (left, top, left + width, top + height))
            if as_pixels:
                exact = torchvision.transforms.functional.pil_to_tensor(picture).float() / 255
                pixels = self.task.repeat(exact)
            else:
                pixels = self.prepare.to_pixels([picture])
            plane = self.seen(pixels.unsqueeze(0))[0].cpu()
            return plane.flatten(0, -3)[0]  # the first picture of a clip or a pair

        black, white = see_box("black", "black"), see_box("white", "white")
        drawn = see_box("black", "white")
        seen = white != black
        inside = ((drawn - black) / (white - black).where(seen, 1)).clamp(0, 1)
        return torch.stack([inside, seen * (1 - inside)])

    def show(self, pixels: Tensor) -> bytes:
        """Return the network's input for one image, as a JPEG file."""
        seen = self.seen(pixels.unsqueeze(0))[0].cpu()
        return draw_pixels(self.task.picture(seen), *self.normalisation())
