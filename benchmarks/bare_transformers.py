"""The smallest program that runs an image through a folder's transformers model, without hooks."""

import sys

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel

model = AutoModel.from_pretrained(sys.argv[1]).eval()
processor = AutoImageProcessor.from_pretrained(sys.argv[1])
with torch.inference_mode():
    model(**processor(Image.open(sys.argv[2]).convert("RGB"), return_tensors="pt"))
