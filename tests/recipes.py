"""Prepare a picture as a recipe says, by plain calls of Pillow, OpenCV, torchvision and numpy.

This is written from the description of recipes, and shares no code with hookcli.
"""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d
from torchvision.transforms import functional

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIZES = [(41, 29), (30, 77), (64, 64), (200, 131), (19, 23), (90, 7)]
HOWS = ["nearest", "bilinear", "bicubic", "area", "lanczos"]


def draw_recipes(number, seed, libraries, *, is_grey=False):
    """Return recipes whose words go together, with a random number of random words."""
    draw = random.Random(seed)
    pairs = [(library, how) for library in libraries for how in HOWS]
    pairs = [pair for pair in pairs if pair != ("torch", "lanczos")]
    means, stds = ["0.5", "0.1/0.2/0.3", "120/110/100"], ["0.25", "0.1/0.2/0.3", "58/57/56"]
    found = []
    while len(found) < number:
        words = {
            "resize": draw.choice(HOWS),
            "fit": draw.choice(["crop", "letterbox", "stretch"]),
            "antialias": "off",
            "crop": str(draw.randint(5, 60)),
            "order": "bgr",
            "scale": draw.choice(["255", "1"]),
            "mean": draw.choice(["0.3", "120"] if is_grey else means),
            "std": draw.choice(["0.25", "58"] if is_grey else stds),
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
        if is_grey and "order" in chosen:
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


def resize(picture, width, height, how, library, *, antialias):
    """Return the pixels (C, H, W) of ``picture``, from 0 to 255, as the library resizes it."""
    if library == "pillow":
        method = Image.Resampling["BOX" if how == "area" else how.upper()]
        return functional.pil_to_tensor(picture.resize((width, height), method))
    if library == "opencv":
        import cv2

        flags = {"area": cv2.INTER_AREA, "lanczos": cv2.INTER_LANCZOS4, "bicubic": cv2.INTER_CUBIC}
        flags |= {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR}
        values = cv2.resize(np.array(picture), (width, height), interpolation=flags[how])
        return torch.from_numpy(values.reshape(height, width, -1)).permute(2, 0, 1)
    pixels = functional.pil_to_tensor(picture)
    if how == "area":
        return adaptive_avg_pool2d(pixels.float(), (height, width)).round().byte()
    mode = functional.InterpolationMode(how)
    return functional.resize(pixels, [height, width], mode, antialias=antialias)


def prepare(picture, words, *, short, side, own=IMAGENET):
    """Return the pixels (C, H, W) of a model that resizes to ``short`` and crops to ``side``.

    The model's ``own`` mean and standard deviation say how many channels it takes: three, or one.
    """
    if "crop" in words:
        short, side = round(short * int(words["crop"]) / side), int(words["crop"])
    picture = picture.convert("L") if len(own[0]) == 1 else picture
    how, library = words.get("resize", "bilinear"), choose_library(words)
    make = partial(resize, picture, how=how, library=library, antialias="antialias" not in words)
    (width, height), fit = picture.size, words.get("fit", "crop")
    if fit == "stretch":
        pixels = make(side, side)
    elif fit == "letterbox":
        ratio = min(side / height, side / width)
        inner = max(1, round(width * ratio)), max(1, round(height * ratio))
        across, down = ((side - length) / 2 for length in inner)  # as YOLO's LetterBox
        starts, ends = ([round(v + by) for v in (across, down)] for by in (-0.1, 0.1))
        pixels = functional.pad(make(*inner), [*starts, *ends], fill=114)
    else:
        wide = short if width <= height else int(short * width / height)
        high = int(short * height / width) if width <= height else short
        pixels = functional.center_crop(make(wide, high), [side, side])
    pixels = pixels[[2, 1, 0]] if "order" in words else pixels
    scaled = pixels.float() if words.get("scale") == "1" else pixels.float() / 255
    mean, std = (
        torch.tensor([float(v) for v in words[k].split("/")] if k in words else plain)
        for k, plain in zip(("mean", "std"), own, strict=True)
    )
    return (scaled - mean[:, None, None]) / std[:, None, None]
