"""The networks that take pixels of one size, and which it is: found out by running all of torchvision's on the meta device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.foreign import ask
from hookcli.models.zoo.torchvision_import import torchvision

if TYPE_CHECKING:
    from torch import nn

_HALVED_TWICE = 4  # before MaxVit's first grid


@dataclass(frozen=True, slots=True)
class FixedSize:
    """The only pixels that a network takes.

    Attributes:
        height: in pixels.
        width: in pixels.
        step: its convolutions round sides up to multiples of this, so a little less is taken too.
    """

    height: int
    width: int
    step: int = 1

    def takes(self, height: int, width: int) -> bool:
        """Whether pixels of this size go through."""
        rounded = (-(-side // self.step) * self.step for side in (height, width))
        return tuple(rounded) == (self.height, self.width)


def find_fixed_size(module: nn.Module) -> FixedSize | None:
    """The size that a network takes and no other; None where it takes several, or where that is not known."""
    if isinstance(module, torchvision.models.VisionTransformer):
        return FixedSize(module.image_size, module.image_size)
    if isinstance(module, torchvision.models.MaxVit):
        height, width = module.blocks[0].grid_size
        return FixedSize(height * _HALVED_TWICE, width * _HALVED_TWICE, _HALVED_TWICE)
    if isinstance(module, torchvision.models.video.MViT):
        (height, width), step = module.pos_encoding.spatial_size, module.conv_proj.stride[-1]
        return FixedSize(height * step, width * step, step)
    patches = ask(module, "patch_embed")  # of timm's transformers
    size = ask(patches, "img_size")
    if ask(patches, "strict_img_size") is True and isinstance(size, tuple):
        return FixedSize(*size)
    return None
