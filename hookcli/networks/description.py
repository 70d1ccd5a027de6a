"""Describe a model's inputs and outputs, and find the part of an image that its layers get."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import nn

from hookcli.networks.inputs import ExtraInputs, draw_pixels
from hookcli.networks.tasks import read_predictions
from hookcli.networks.torchvision_import import torchvision
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from hookcli.networks.task import MeanStd, Predictions, Preprocessing, Sizes, Task
    from hookcli.records.images import Box
    from hookcli.records.runs import ModelInfo

_LARGE_ENOUGH = 512  # pixels of the short side of a picture that shows the part well
_SAME_PART = 0.01  # of the short side: how far two findings of one part may be apart
_MOST_BENT = 0.02  # how far pixels may lie from where a crop has them, as a share of the side
_UNCHANGED = nn.Identity()  # represents a model that does not resize its pixels itself


@dataclass(frozen=True, slots=True)
class ModelDescription:
    info: ModelInfo
    prepare: Preprocessing  # turns upright RGB pictures into pixels on the CPU
    categories: tuple[str, ...] = ()  # the class names by index; empty if they are not known
    # returns the pixels (1, …) of the first usable image of the run, if there is one
    first: Callable[[], Tensor | None] = lambda: None
    # returns the one of several tensors in an output that predictions and scores read
    choose: Callable[[object], Tensor] | None = None
    extra: ExtraInputs | None = None  # the inputs besides the pixels, if any

    @property
    def task(self) -> Task:
        return self.prepare.task

    @property
    def knows_input(self) -> bool:
        return self.prepare.channels is not None

    def pixels_to_try(self) -> Tensor:
        pixels = self.first()
        return self.convert(torch.zeros(self.prepare.nominal_shape) if pixels is None else pixels)

    def convert(self, pixels: Tensor) -> Tensor:
        return pixels

    def seen(self, pixels: Tensor) -> Tensor:
        return pixels

    def normalisation(self) -> MeanStd:
        return self.task.normalisation(_UNCHANGED, self.prepare.transform)

    def read(self, output: object, sizes: Sizes = ()) -> Predictions:
        return read_predictions(self.pick(output), self.categories, sizes, self.task)

    def pick(self, output: object) -> object:
        """Return the part of a model's output from which predictions and scores are read.

        This is the whole output, unless the user chose one of its tensors. If the chosen tensor has
        four axes, as class maps (N, K, H, W) have, the result is ``{"out": tensor}``, which is what
        torchvision's segmentation models return.
        """
        if self.choose is None:
            return output
        chosen = self.choose(output)
        return {"out": chosen} if chosen.dim() == 4 else chosen

    def hash_code(self, score: str) -> dict[str, str]:
        return {} if self.extra is None else {**self.extra.hashes}

    def guard(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def find_box(
        self, size: tuple[int, int], box: tuple[int, int, int, int], *, as_pixels: bool = False
    ) -> Tensor:
        """Return two masks (2, H, W) that show where a box of the image is in the layers' input.

        For each input pixel, the first mask has the share (0 to 1) inside the box, and the second
        has the share that is in the image but outside the box. Both are 0 at padding. ``size`` is
        the image's (width, height), and ``box`` is (left, top, width, height), in image pixels.
        ``as_pixels`` means that the image is a tensor file, which hookcli does not preprocess.
        """
        # hookcli prepares a white box in the same way as the image.
        left, top, width, height = box

        def draw_box() -> Iterator[Image.Image]:
            picture = Image.new("RGB", size)
            picture.paste("white", (left, top, left + width, top + height))
            yield picture

        (inside,), seen = self._see(size, draw_box(), as_pixels=as_pixels)
        return torch.stack([inside, seen * (1 - inside)])

    def find_part(self, size: tuple[int, int], *, as_pixels: bool = False) -> Box | None:
        """Return the part of an image that the layers get: left, top, right and bottom, in pixels.

        The part is larger than the image if the preprocessing adds a border. The result is None if
        the preprocessing does more than resize and crop. ``as_pixels`` is as in ``find_box``.
        """
        # hookcli prepares pictures in which the brightness of a pixel shows its column or row. They
        # are smaller than a large photo, unless pictures of half their size give another part.
        times = min(size) // _LARGE_ENOUGH
        if times > 1 and not as_pixels:
            some, half = (self._find_smaller(size, each * times) for each in (1, 2))
            if some is None or half is None:
                return None
            apart = [abs(one - two) for one, two in zip(some, half, strict=True)]
            if max(apart) <= _SAME_PART * min(size):
                return some
        return self._find_part(size, as_pixels=as_pixels)

    def _find_smaller(self, size: tuple[int, int], times: int) -> Box | None:
        width, height = (max(1, round(side / times)) for side in size)
        part = self._find_part((width, height), as_pixels=False)
        if part is None:
            return None
        scales = (size[0] / width, size[1] / height) * 2
        return tuple(round(side * scale, 2) for side, scale in zip(part, scales, strict=True))

    def _find_part(self, size: tuple[int, int], *, as_pixels: bool) -> Box | None:
        ramp = Image.linear_gradient("L")  # black above, white below
        turned = ramp.transpose(Image.Transpose.ROTATE_90)  # black on the left
        pictures = (
            each.resize(size, Image.Resampling.BILINEAR).convert("RGB") for each in (turned, ramp)
        )
        (across, down), seen = self._see(size, pictures, as_pixels=as_pixels)
        columns, rows = _fit_line(across, seen, size[0], 1), _fit_line(down, seen, size[1], 0)
        if columns is None or rows is None:
            return None
        return columns[0], rows[0], columns[1], rows[1]

    def _see(
        self, size: tuple[int, int], pictures: Iterable[Image.Image], *, as_pixels: bool
    ) -> tuple[list[Tensor], Tensor]:
        """Return the brightness of each grey picture in the layers' input, and a mask of the image.

        The brightness of a picture is a map (H, W) from 0 to 1. The mask (H, W) is False at
        padding, where no picture changes the input. ``as_pixels`` skips preprocessing.
        """
        # ``pictures`` draws one after the other, and none is kept, as they may be large.

        def see(picture: Image.Image) -> Tensor:
            if as_pixels:
                exact = torchvision.transforms.functional.pil_to_tensor(picture).float() / 255
                pixels = self.task.repeat(exact)
            else:
                pixels = self.prepare.to_pixels([picture])
            plane = self.seen(pixels.unsqueeze(0))[0].cpu()
            return plane.flatten(0, -3)[0]  # the first picture of a clip or a pair

        black, white = (see(Image.new("RGB", size, colour)) for colour in ("black", "white"))
        seen = white != black
        span = (white - black).where(seen, 1)
        return [((see(each) - black) / span).clamp(0, 1) for each in pictures], seen

    def show(self, pixels: Tensor) -> bytes:
        seen = self.seen(pixels.unsqueeze(0))[0].cpu()
        picture, colours = self.task.picture(seen), self.normalisation()
        picture = picture.flip(0) if self.prepare.is_bgr else picture
        if self.prepare.is_bgr or ask(self.prepare.transform, "flips_colours"):
            colours = (colours[0][::-1], colours[1][::-1])
        return draw_pixels(picture, *colours)


def _fit_line(ramped: Tensor, seen: Tensor, side: int, axis: int) -> tuple[float, float] | None:
    """Return where the part of an image that the layers get starts and ends, in image pixels.

    ``ramped`` (H, W) is the layers' input for a picture whose brightness rises from 0 to 1 along
    ``axis``, where the picture has ``side`` pixels. ``seen`` (H, W) is False at padding. The result
    is None if the brightness in ``ramped`` does not rise, or does not rise evenly.
    """
    lines = seen.any(1 - axis)
    weights = seen.sum(1 - axis, keepdim=True).clamp(min=1)
    along = (ramped * seen).sum(1 - axis, keepdim=True) / weights
    turned = ((ramped - along).abs() * seen).sum() / seen.sum().clamp(min=1)
    means = along.flatten()[lines].double()
    middles = lines.nonzero().flatten().double() + 0.5
    # the ramp is level in the outermost pixels of the image and of its scaled copy
    sloped = (means > 1 / 64) & (means < 1 - 1 / 64)
    if int(sloped.sum()) < 2 or turned > _MOST_BENT:
        return None
    # row i of Pillow's ramp has the brightness i / 255, and its middle is (i + 0.5) / 256 down
    middles, values = middles[sloped], (255 * means[sloped] + 0.5) / 256 * side
    slope, start = np.polyfit(middles, values, 1)
    bent = float((values - start - slope * middles).abs().max())
    if slope <= 0 or bent > max(1.0, _MOST_BENT * side):
        return None
    end = start + slope * ramped.shape[axis]
    return round(float(start), 2), round(float(end), 2)
