"""Draw images with known contents, for ``hookcli probe`` and ``hookcli map``.

    python tools/shapes.py shapes FOLDER [--images 500]
    python tools/shapes.py scenes FOLDER [--images 500] [--duplicates 20] [--strangers 10]

``shapes`` draws one shape per image, and writes the colours, orientations and forms to colour.csv,
orientation.csv and form.csv, for ``--labels``. ``scenes`` draws several shapes per image. Duplicates
are scenes that are cropped by 5 % or compressed again; strangers are images without shapes;
planted.json lists both. The same arguments always draw the same images.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIDE = 256
COLOURS = {
    "red": (205, 55, 50),
    "yellow": (225, 190, 55),
    "green": (60, 150, 70),
    "blue": (55, 95, 190),
    "purple": (135, 70, 160),
}
FORMS = ("bar", "ellipse", "triangle", "arrow", "cross")
ORIENTATIONS = (0, 45, 90, 135)
_FINE = 3  # shapes are drawn as many times larger, and then reduced


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("shapes", "scenes"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--duplicates", type=int, default=0)
    parser.add_argument("--strangers", type=int, default=0)
    arguments = parser.parse_args()
    draw = np.random.default_rng(0)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.what == "shapes":
        draw_shapes(arguments.folder, arguments.images, draw)
    else:
        draw_scenes(arguments.folder, arguments.images, draw)
        plant(arguments.folder, arguments, draw)


def draw_shapes(folder: Path, images: int, draw: np.random.Generator) -> None:
    """Draw images with one shape each, and write their labels."""
    labels: dict[str, list[tuple[str, str]]] = {"colour": [], "form": [], "orientation": []}
    for number in range(images):
        name = f"shape-{number:04}.jpg"
        image = draw_background(draw).resize((SIDE * _FINE, SIDE * _FINE))
        facts = draw_shape(image, draw, draw.uniform(95, 135), draw.uniform(0.36, 0.64, 2))
        image = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        noise = draw.normal(0, 5, (SIDE, SIDE, 3))
        noisy = (np.asarray(image, np.float64) + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / name, quality=92)
        for label, value in facts.items():
            labels[label].append((name, value))
    for label, rows in labels.items():
        with (folder / f"{label}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("image", "label"), *rows])


def draw_scenes(folder: Path, images: int, draw: np.random.Generator) -> None:
    """Draw images with two to seven shapes each."""
    for number in range(images):
        image = draw_texture(draw).resize((SIDE * _FINE, SIDE * _FINE))
        for _ in range(draw.integers(2, 8)):
            draw_shape(image, draw, draw.uniform(50, 190), draw.uniform(0.1, 0.9, 2))
        small = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        grain = np.asarray(draw_texture(draw), np.float64).mean(2, keepdims=True) - 128
        textured = np.asarray(small, np.float64) + 0.35 * grain
        small = Image.fromarray(textured.clip(0, 255).astype(np.uint8))
        small.save(folder / f"scene-{number:04}.jpg", quality=92)


def plant(folder: Path, arguments: argparse.Namespace, draw: np.random.Generator) -> None:
    """Write duplicates of scenes, and strangers; list their files in planted.json."""
    planted: dict[str, list[object]] = {"duplicates": [], "strangers": []}
    for number in range(arguments.duplicates):
        original = f"scene-{number * arguments.images // arguments.duplicates:04}.jpg"
        copy = f"copy-{number:02}.jpg"
        with Image.open(folder / original) as image:
            if number % 2:
                image.save(folder / copy, quality=70)
            else:
                cut = round(image.width * 0.025)  # on each side
                box = (cut, cut, image.width - cut, image.height - cut)
                image.crop(box).save(folder / copy, quality=92)
        planted["duplicates"].append([original, copy])
    for number in range(arguments.strangers):
        name = f"odd-{number:02}.jpg"
        draw_stranger(number, draw).save(folder / name, quality=92)
        planted["strangers"].append(name)
    (folder / "planted.json").write_text(json.dumps(planted, indent=1) + "\n")


def draw_shape(
    image: Image.Image, draw: np.random.Generator, length: float, center: NDArray[np.float64]
) -> dict[str, str]:
    """Draw a random shape on an image, and return its labels.

    Args:
        image: the image, ``_FINE`` times as large as it will be.
        draw: the random generator.
        length: the length of the shape in pixels.
        center: the middle of the shape, in shares of the width and height of the image.
    """
    colour = list(COLOURS)[draw.integers(len(COLOURS))]
    form = FORMS[draw.integers(len(FORMS))]
    angle = int(ORIENTATIONS[draw.integers(len(ORIENTATIONS))])
    width = length * draw.uniform(0.22, 0.34)
    shade = draw.uniform(0.85, 1.15)
    fill = tuple(int(min(255, part * shade)) for part in COLOURS[colour])
    turn = math.radians(-angle + draw.uniform(-8, 8))
    for outline in list_outlines(form, length * _FINE, width * _FINE):
        points = [
            (
                center[0] * image.width + x * math.cos(turn) - y * math.sin(turn),
                center[1] * image.height + x * math.sin(turn) + y * math.cos(turn),
            )
            for x, y in outline
        ]
        ImageDraw.Draw(image).polygon(points, fill=fill)
    return {"colour": colour, "form": form, "orientation": str(angle)}


def list_outlines(form: str, length: float, width: float) -> list[list[tuple[float, float]]]:
    """Return the polygons of a form whose centre is the origin and whose long side is horizontal."""
    a, b = length / 2, width / 2
    if form == "ellipse":
        angles = np.linspace(0, 2 * math.pi, 60)
        return [[(a * math.cos(each), 1.3 * b * math.sin(each)) for each in angles]]
    if form == "triangle":
        return [[(-a, -1.6 * b), (-a, 1.6 * b), (a, 0)]]
    bar = [(-a, -b), (a, -b), (a, b), (-a, b)]
    if form == "arrow":
        return [
            [(-a, -b / 2), (a / 3, -b / 2), (a / 3, b / 2), (-a, b / 2)],
            [(a / 4, -2 * b), (a, 0), (a / 4, 2 * b)],
        ]
    if form == "cross":
        return [bar, [(-b, -a / 2), (b, -a / 2), (b, a / 2), (-b, a / 2)]]
    return [bar]


def draw_background(draw: np.random.Generator) -> Image.Image:
    """Return a soft grey or brown background with blurred spots."""
    base = draw.uniform(120, 215) + draw.uniform(-12, 12, 3)
    spots = draw.normal(0, 26, (8, 8, 3)).mean(2, keepdims=True) + draw.normal(0, 6, (8, 8, 3))
    pixels = (base + spots).clip(0, 255).astype(np.uint8)
    soft = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return soft.filter(ImageFilter.GaussianBlur(6))


def draw_texture(draw: np.random.Generator) -> Image.Image:
    """Return a texture in random colours, with details of all sizes, like a photo."""
    total = np.zeros((SIDE, SIDE, 3))
    rough = draw.uniform(0.55, 0.8)  # the weight of each octave relative to the one before
    tint = draw.uniform(0.6, 1.4, 3)
    for octave in range(2, 9):
        side = 2**octave
        grey = draw.normal(0, 1, (side, side, 1)) * tint + draw.normal(0, 0.3, (side, side, 3))
        fine = [
            np.asarray(
                Image.fromarray(grey[..., part].astype(np.float32)).resize(
                    (SIDE, SIDE), Image.Resampling.BICUBIC
                )
            )
            for part in range(3)
        ]
        total += np.stack(fine, -1) * rough**octave
    pixels = draw.uniform(70, 190, 3) + total / total.std() * draw.uniform(18, 45)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def draw_stranger(number: int, draw: np.random.Generator) -> Image.Image:
    """Return an image without shapes: stripes, noise, checks, rings, gradients and the like."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    kinds = (
        lambda: np.sin(60 * x)[..., None] * [90, 90, 90] + 128,
        lambda: draw.uniform(0, 255, (SIDE, SIDE, 3)),
        lambda: (((x * 8).astype(int) + (y * 8).astype(int)) % 2)[..., None] * [230, 230, 230],
        lambda: np.sin(90 * np.hypot(x - 0.5, y - 0.5))[..., None] * [120, 60, 20] + 128,
        lambda: np.stack([255 * x, 255 * y, 255 * (1 - x)], -1),
        lambda: (draw.uniform(0, 1, (SIDE, SIDE, 1)) > 0.97) * [255.0, 255.0, 255.0],
        lambda: np.zeros((SIDE, SIDE, 3)),
        lambda: np.sin(40 * x * y)[..., None] * [20, 100, 120] + 128,
        lambda: np.kron(draw.uniform(0, 255, (16, 16, 3)), np.ones((16, 16, 1))),
        lambda: (np.sin(25 * x) * np.sin(25 * y))[..., None] * [120, 120, 0] + 128,
    )
    pixels = kinds[number % len(kinds)]()
    return Image.fromarray(np.asarray(pixels).clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    main()
