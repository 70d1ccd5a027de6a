"""Optical flow: a pair of pictures, how far each pixel moves from the first to the second."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hookcli.errors import RequestError
from hookcli.models.tasks.outputs import finite, is_floats
from hookcli.models.tasks.task import Preprocessing, Task
from hookcli.records.images import Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image
    from torch import Tensor, nn

    from hookcli.config import ModelRequest
    from hookcli.models.tasks.outputs import Predictions, Scored
    from hookcli.models.tasks.presets import MakePreset, Transform
    from hookcli.models.tasks.task import Pictures

_STEP = 8  # RAFT halves three times
_LEAST, _MOST = 128, 960  # its correlation volume is large


class OpticalFlow(Task):
    """Models that follow what moves from one picture to the next."""

    word = "optical_flow"
    nominal = (368, 496)
    takes_pair = True
    takes_any_size = True
    shares_forward = False

    def prepare(self, request: ModelRequest, module: nn.Module, make: MakePreset) -> Preprocessing:
        """Return the preset; only the size can be changed."""
        for name in ("resize", "mean", "std", "interpolation"):
            if getattr(request, name) is not None:
                raise RequestError(
                    f"--{name} does nothing to an optical flow model",
                    "leave it out; --size N can be set",
                )
        return Preprocessing(self, make(), size=request.size)

    def shape(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        return (1, 2, channels, height, width)

    def to_pixels(self, pictures: Pictures, transform: Transform, size: int | None) -> Tensor:
        """Return a pair (2, C, H, W); one picture is used twice."""
        sides = _find_sides(pictures[0], size)
        pair = [picture.resize(sides) for picture in (*pictures, *pictures)[:2]]
        return torch.stack(transform(*pair))

    def repeat(self, pixels: Tensor) -> Tensor:
        return torch.stack([pixels, pixels])

    def describe(self, pictures: Pictures, count: int, size: int | None) -> str:
        made = "a pair of images" if count > 1 else "a pair: the same image twice"
        sides = _find_sides(pictures[0], size) if pictures else (0, 0)
        is_other = any(picture.size != sides for picture in pictures[:2])
        return f"{made}, resized to {sides[0]} by {sides[1]} pixels" if is_other else made

    def arguments(self, pixels: Tensor) -> tuple[object, ...]:
        return pixels[:, 0], pixels[:, 1]

    def picture(self, seen: Tensor) -> Tensor:
        """Return the first picture."""
        return seen[0]

    def normalisation(
        self, module: nn.Module, transform: object
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Return what the preset does, which has no attributes that say so."""
        return [0.5] * 3, [0.5] * 3

    def read(self, output: object, categories: Sequence[str]) -> Predictions | None:
        """Return how far pixels move."""
        flow = _find_last_flow(output)
        if flow is None:
            return None
        lengths = flow.detach().float().norm(dim=1).flatten(1).cpu()
        return [
            (
                Prediction("pixels", "mean flow", None, finite(float(image.mean()))),
                Prediction("pixels", "greatest flow", None, finite(float(image.max()))),
            )
            for image in lengths
        ]

    def score(self, output: object, kind: str, target: int | None) -> Scored | None:
        """Return the mean length of the last flow, in pixels."""
        flow = _find_last_flow(output)
        if flow is None:
            return None
        if target is not None or kind != "logit":
            raise RequestError(
                "an optical flow has no classes", "leave --target and --score as they are"
            )
        return flow.norm(dim=1).mean(), None, "mean flow in pixels"


def _find_sides(picture: Image.Image, short: int | None) -> tuple[int, int]:
    """Return width and height for an optical flow model: multiples of 8, and at least 128.

    No side is longer than 960 unless ``short``, the length of the short side, asks for it.
    """
    scale = short / min(picture.size) if short else min(1.0, _MOST / max(picture.size))
    width, height = (
        max(_LEAST, math.floor(side * scale / _STEP + 0.5) * _STEP) for side in picture.size
    )
    return width, height


def _find_last_flow(output: object) -> Tensor | None:
    """Return the last of the flows (N, 2, H, W) that a model refines; None for other outputs."""
    if isinstance(output, list) and output and all(map(_is_flow, output)):
        last: Tensor = output[-1]
        return last
    return None


def _is_flow(value: object) -> bool:
    return is_floats(value, 4) and value.shape[1] == 2
