"""Networks that accept pixels of one size only, and that size.

Which networks these are was determined by running all of torchvision's on the meta device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.models.torchvision_import import torchvision
from hookcli.outside.foreign import ask

if TYPE_CHECKING:
    from torch import nn

_HALVED_TWICE = 4  # MaxVit halves its input twice before its first grid


@dataclass(frozen=True, slots=True)
class FixedSize:
    """The only size of pixels that a network accepts.

    Attributes:
        height: the height in pixels.
        width: the width in pixels.
        step: the network's convolutions round each side up to a multiple of this many pixels, so
            slightly smaller pixels are accepted too.
    """

    height: int
    width: int
    step: int = 1

    def takes(self, height: int, width: int) -> bool:
        """Return whether the network accepts pixels of this size."""
        rounded = (-(-side // self.step) * self.step for side in (height, width))
        return tuple(rounded) == (self.height, self.width)


def find_fixed_size(module: nn.Module) -> FixedSize | None:
    """Return the only size that a network accepts.

    None where it accepts several sizes, or where that is not known.
    """
    if isinstance(module, torchvision.models.VisionTransformer):
        return FixedSize(module.image_size, module.image_size)
    if isinstance(module, torchvision.models.MaxVit):
        height, width = module.blocks[0].grid_size
        return FixedSize(height * _HALVED_TWICE, width * _HALVED_TWICE, _HALVED_TWICE)
    if isinstance(module, torchvision.models.video.MViT):
        (height, width), step = module.pos_encoding.spatial_size, module.conv_proj.stride[-1]
        return FixedSize(height * step, width * step, step)
    patches = ask(module, "patch_embed")  # timm's transformers have one
    size = ask(patches, "img_size")
    if ask(patches, "strict_img_size") is True and isinstance(size, tuple):
        return FixedSize(*size)
    return None
