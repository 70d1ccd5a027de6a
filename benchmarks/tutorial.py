"""The code of usual tutorials: keep the outputs of all convolutions, and plot each layer."""

import math
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch import nn
from torchvision.models import ResNet34_Weights, resnet34

torch.manual_seed(0)
model = resnet34(weights=None).eval()
outputs = {}
for name, module in model.named_modules():
    if isinstance(module, nn.Conv2d):
        module.register_forward_hook(
            lambda _m, _i, out, name=name: outputs.update({name: out.detach()})
        )
pixels = ResNet34_Weights.DEFAULT.transforms()(Image.open(sys.argv[1]).convert("RGB"))
with torch.no_grad():
    model(pixels.unsqueeze(0))
folder = Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
most = len if sys.argv[3] == "all" else lambda _channels: 64
for name, output in outputs.items():
    channels = output[0][: most(output[0])]
    side = math.ceil(len(channels) ** 0.5)
    plt.figure(figsize=(30, 30))
    for index, channel in enumerate(channels):
        plt.subplot(side, side, index + 1)
        plt.imshow(channel, cmap="gray")
        plt.axis("off")
    plt.savefig(folder / f"{name}.png")
    plt.close()
