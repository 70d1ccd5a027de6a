"""Measure how often ``hookcli places`` matches a photo correctly with a shifted copy.

The photo and its copy are two crops of 448 x 448 pixels, 64 pixels apart in both directions. For
each layer, this prints the share of places (positions of the feature map) whose match is shifted by
64 pixels: among all places that both crops show, and among those two or more places from an edge.

    python tools/shifted.py timm:tf_efficientnet_lite0 blocks.3 --weights FILE.pth
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from hookcli.__main__ import _run

PHOTO = Path(__file__).parent.parent / "sample_images/astronaut.png"
SIDE, SHIFT, EDGE = 448, 64, 2


def measure(model: str, layer: str, weights: str) -> tuple[float, float]:
    """Return the share of correct matches: of places in both crops, and of those away from edges."""
    size = ("--size", str(SIDE), "--resize", str(SIDE), "--weights", weights)
    words = ("places", model, "one.png", "two.png", "--layers", layer, *size)
    output = ("--correspond", "two.png", "-o", "out", "--overwrite", "-q")
    with mock.patch.object(sys, "argv", ["hookcli", *words, *output]):
        assert _run() == 0, layer  # noqa: S101
    table = pq.read_table("out/places.parquet").to_pydict()
    columns = (np.array(table[name]) for name in ("row", "column", "match_row", "match_column"))
    row, column, match_row, match_column = columns
    count = row.max() + 1
    by = SHIFT * count // SIDE
    right = (match_row == row - by) & (match_column == column - by)
    low, high = np.minimum(row, column), np.maximum(row, column)
    inner = (low >= by + EDGE) & (high < count - EDGE)
    return float(right[low >= by].mean()), float(right[inner].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("layers", nargs="+")
    parser.add_argument("--weights", default="auto")
    asked = parser.parse_args()
    weights = asked.weights
    if Path(weights).is_file():
        weights = str(Path(weights).absolute())
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        with Image.open(PHOTO) as opened:
            photo = opened.convert("RGB")
        photo.crop((0, 0, SIDE, SIDE)).save("one.png")
        photo.crop((SHIFT, SHIFT, SIDE + SHIFT, SIDE + SHIFT)).save("two.png")
        shares = {layer: measure(asked.model, layer, weights) for layer in asked.layers}
    for layer, (both, inner) in shares.items():
        print(f"{layer}: {both:.1%} of the places in both, {inner:.1%} away from the edges")


if __name__ == "__main__":
    main()
