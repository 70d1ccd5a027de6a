"""The pixels of a PNG, for tests of charts."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def read_pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def find(png, color, within=40):
    """The pixels of about one colour, (H, W)."""
    wanted = np.array([int(color[index : index + 2], 16) for index in (1, 3, 5)])
    return np.abs(read_pixels(png) - wanted).max(2) <= within
