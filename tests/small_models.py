"""Small models of torchvision's own classes, with the same layers in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torchvision.models import densenet, vgg
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.maxvit import MaxVit
from torchvision.models.swin_transformer import (
    PatchMergingV2,
    SwinTransformer,
    SwinTransformerBlockV2,
)
from torchvision.models.vision_transformer import VisionTransformer

if TYPE_CHECKING:
    from collections.abc import Callable

SWIN = {"patch_size": [4, 4], "embed_dim": 24, "depths": [2, 2, 2], "num_heads": [2, 4, 8]}


def small_vgg() -> nn.Module:
    with torch.device("meta"):
        model = vgg.vgg11_bn(weights=None)
    model.avgpool = nn.AdaptiveAvgPool2d(2)
    model.classifier[0] = nn.Linear(512 * 4, 64)
    model.classifier[3] = nn.Linear(64, 64)
    model.classifier[6] = nn.Linear(64, 100)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


SMALL_MODELS: dict[str, Callable[[], nn.Module]] = {
    "vgg": small_vgg,
    "densenet": lambda: densenet.DenseNet(8, (3, 3, 3), 16),
    "vit": lambda: VisionTransformer(64, 16, 4, 4, 32, 64),
    "swin": lambda: SwinTransformer(**SWIN, window_size=[7, 7]),
    "swin_v2": lambda: SwinTransformer(
        **SWIN,
        window_size=[8, 8],
        block=SwinTransformerBlockV2,
        downsample_layer=PatchMergingV2,
    ),
    "convnext": lambda: ConvNeXt(
        [CNBlockConfig(16, 32, 2), CNBlockConfig(32, 48, 2), CNBlockConfig(48, None, 2)]
    ),
    "maxvit": lambda: MaxVit((64, 64), 16, 4, [16, 32], [2, 2], 8, 0.0),
}


def build_small(name: str) -> nn.Module:
    """Return a model of the family ``name``, with weights from seed 0, for pixels of 64 by 64."""
    torch.manual_seed(0)
    return SMALL_MODELS[name]().eval()
