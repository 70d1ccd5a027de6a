"""The smallest program that runs an image: build, prepare, one forward pass, and no hooks."""

import sys

import torch
from PIL import Image
from torchvision.models import ResNet34_Weights, resnet34

torch.manual_seed(0)
model = resnet34(weights=None).eval()
pixels = ResNet34_Weights.DEFAULT.transforms()(Image.open(sys.argv[1]).convert("RGB"))
with torch.inference_mode():
    model(pixels.unsqueeze(0))
