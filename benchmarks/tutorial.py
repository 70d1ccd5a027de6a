"""The way of the tutorials: keep every convolution's output, then one matplotlib figure a layer."""

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
for name, output in outputs.items():
    plt.figure(figsize=(20, 20))
    for index, channel in enumerate(output[0][:64]):
        plt.subplot(8, 8, index + 1)
        plt.imshow(channel, cmap="viridis")
        plt.axis("off")
    plt.savefig(folder / f"{name}.png")
    plt.close()
