"""Video: a clip of frames, classified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hookcli.config import CLIP_FRAMES
from hookcli.models.tasks.classification import Classification
from hookcli.models.tasks.torchvision_import import torchvision
from hookcli.records.frames import spread_evenly

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.models.tasks.presets import Transform
    from hookcli.models.tasks.task import Pictures


class Video(Classification):
    """Models that name what happens in a clip."""

    word = "video"
    frames = CLIP_FRAMES
    shares_forward = False
    is_faster_channels_last = False

    def shape(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        return (1, channels, CLIP_FRAMES, height, width)

    def to_pixels(self, pictures: Pictures, transform: Transform, size: int | None) -> Tensor:
        """Return a clip (C, T, H, W) of pictures, all resized to the size of the first."""
        same = [picture.resize(pictures[0].size) for picture in pictures]
        to_tensor = torchvision.transforms.functional.pil_to_tensor
        frames = [to_tensor(same[i]) for i in spread_evenly(len(same), CLIP_FRAMES)]
        clip: Tensor = transform(torch.stack(frames))
        return clip

    def repeat(self, pixels: Tensor) -> Tensor:
        return pixels.unsqueeze(1).expand(-1, CLIP_FRAMES, -1, -1).clone()

    def describe(self, pictures: Pictures, count: int, size: int | None) -> str:
        source = f"{count} frames" if count > 1 else "the still image"
        return f"a clip of {CLIP_FRAMES} frames, taken from {source}"

    def picture(self, seen: Tensor) -> Tensor:
        """Return the middle frame."""
        return seen[:, seen.shape[1] // 2]
