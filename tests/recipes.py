"""Prepare a picture as a recipe says, by plain calls of Pillow, OpenCV, torchvision and numpy.

This is written from the description of recipes, and shares no code with hookcli.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIZES = [(41, 29), (30, 77), (64, 64), (200, 131), (19, 23), (90, 7)]
HOWS = ["nearest", "bilinear", "bicubic", "area", "lanczos"]


def draw_recipes(number, seed, libraries):
    """Return recipes whose words go together, with a random number of random words."""
    draw = random.Random(seed)
    pairs = [(library, how) for library in libraries for how in HOWS]
    pairs = [pair for pair in pairs if pair != ("torch", "lanczos")]
    found = []
    while len(found) < number:
        words = {
            "resize": draw.choice(HOWS),
            "fit": draw.choice(["crop", "letterbox", "stretch"]),
            "antialias": "off",
            "crop": str(draw.randint(5, 60)),
            "order": "bgr",
            "scale": draw.choice(["255", "1"]),
            "mean": draw.choice(["0.5", "0.1/0.2/0.3", "120/110/100"]),
            "std": draw.choice(["0.25", "0.1/0.2/0.3", "58/57/56"]),
            "library": draw.choice(libraries),
        }
        chosen = {k: words[k] for k in draw.sample(list(words), draw.randint(1, len(words)))}
        if len(found) % 2:  # every second one says what resizes, and how: each pair in its turn
            library, how = pairs[len(found) // 2 % len(pairs)]
            chosen |= {"library": library, "resize": how}
        how, library = chosen.get("resize", "bilinear"), choose_library(chosen)
        is_off = "antialias" in chosen
        if is_off and (library == "pillow" or how in ("nearest", "area")):
            continue
        if (library, how) != ("torch", "lanczos") and library in libraries:
            found.append(chosen)
    return found


def write_recipe(words):
    return ",".join(f"{k}{':' if k == 'resize' else '='}{v}" for k, v in words.items())


def choose_library(words):
    return words.get("library") or ("torch" if "antialias" in words else "pillow")


def noise(width, height, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def resize(picture, width, height, how, library, antialias):
    if library == "pillow":
        methods = {
            "area": Image.Resampling.BOX,
            "lanczos": Image.Resampling.LANCZOS,
            "nearest": Image.Resampling.NEAREST,
        }
        methods |= {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
        return np.asarray(picture.resize((width, height), methods[how]))
    if library == "opencv":
        import cv2

        flags = {"area": cv2.INTER_AREA, "lanczos": cv2.INTER_LANCZOS4}
        flags |= {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR}
        method = flags.get(how, cv2.INTER_CUBIC)
        return cv2.resize(np.asarray(picture), (width, height), interpolation=method)
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
    if how == "area":
        pooled = torch.nn.functional.adaptive_avg_pool2d(pixels.float(), (height, width))
        return pooled.round().byte().permute(1, 2, 0).numpy()
    mode = transforms.InterpolationMode(how)
    step = transforms.Resize((height, width), mode, antialias=antialias)
    return step(pixels).permute(1, 2, 0).numpy()


def prepare(picture, words, *, short, side, crops=True):
    """Return the pixels (3, H, W) of a model that resizes to ``short`` and crops to ``side``."""
    how, library = words.get("resize", "bilinear"), choose_library(words)
    if "crop" in words:
        short, side = round(short * int(words["crop"]) / side), int(words["crop"])
    antialias = "antialias" not in words
    width, height = picture.size
    fit = words.get("fit", "crop")
    if fit == "stretch":
        values = resize(picture, side, side, how, library, antialias)
    elif fit == "letterbox":
        ratio = min(side / height, side / width)
        inner = max(1, round(width * ratio)), max(1, round(height * ratio))
        values = resize(picture, *inner, how, library, antialias)
        left, top = ((side - length) / 2 for length in inner)
        edges = [(round(edge - 0.1), round(edge + 0.1)) for edge in (top, left)]
        values = np.pad(values, (*edges, (0, 0)), constant_values=114)
    else:
        wide = short if width <= height else int(short * width / height)
        high = int(short * height / width) if width <= height else short
        values = resize(picture, wide, high, how, library, antialias)
        if crops:
            values = np.asarray(transforms.CenterCrop(side)(Image.fromarray(values)))
    if "order" in words:
        values = values[..., ::-1]
    pixels = values.astype(np.float32) / np.float32(words.get("scale", 255))
    mean, std = (
        np.array([float(v) for v in words[k].split("/")] if k in words else own, np.float32)
        for k, own in zip(("mean", "std"), IMAGENET, strict=True)
    )
    return torch.from_numpy(np.ascontiguousarray(((pixels - mean) / std).transpose(2, 0, 1)))
