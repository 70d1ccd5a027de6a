"""The smallest program that shows an image to a model of transformers in a folder; no hooks."""

import sys

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel

model = AutoModel.from_pretrained(sys.argv[1]).eval()
processor = AutoImageProcessor.from_pretrained(sys.argv[1])
with torch.inference_mode():
    model(**processor(Image.open(sys.argv[2]).convert("RGB"), return_tensors="pt"))
