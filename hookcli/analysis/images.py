"""Find images of a run by name or content; convert pixels to places (tokens or map pixels)."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import unquote

import numpy as np

from hookcli.errors import RequestError, hint_near
from hookcli.outside.documents import DamagedError, convert
from hookcli.outside.escape import for_page, reversible
from hookcli.reading.run_files import cannot_read
from hookcli.records.images import ImageResult, match_images
from hookcli.store.locations.names import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hookcli.reading.load import Run
    from hookcli.records.images import Box

    Pixel: TypeAlias = tuple[float | None, float | None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Geometry:
    file: str
    size: tuple[int, int]  # width, height
    part: Box | None  # left, top, right and bottom of what the network saw; None if unknown

    def find_place(self, point: tuple[int, int], grid: tuple[int, int]) -> int:
        """Return the index of the place that covers the pixel (x, y), counted row by row.

        ``grid`` is the number of rows and columns of places. Raise a RequestError if the network
        did not see the pixel, or if the run does not say which pixels the network saw.
        """
        x, y = point
        width, height = self.size
        if not (0 <= x < width and 0 <= y < height):
            what = f"{x},{y} is outside {self.file!r}, which is {width} by {height} pixels"
            raise RequestError(what, "count pixels from the upper left corner, from 0")
        if self.part is None:
            what = f"the run does not say which part of {self.file!r} the network saw"
            raise RequestError(what, "make the run again, with whole tensors")
        left, top, right, bottom = self.part
        across, down = (x + 0.5 - left) / (right - left), (y + 0.5 - top) / (bottom - top)
        if not (0 <= across < 1 and 0 <= down < 1):
            first, last = (
                f"{math.ceil(across - 0.5) - before},{math.ceil(down - 0.5) - before}"
                for across, down, before in ((left, top, 0), (right, bottom, 1))
            )
            raise RequestError(
                f"{x},{y} of {self.file!r} is cut away: the network saw the pixels from "
                f"{first} to {last}",
                "choose a pixel there, or make the run with another `resize`",
            )
        rows, columns = grid
        return int(down * rows) * columns + int(across * columns)

    def find_pixels(self, grid: tuple[int, int]) -> NDArray[np.float64]:
        """Return the middle (x, y) of each place of a grid, (rows * columns, 2); NaN if unknown."""
        rows, columns = grid
        down, across = np.indices(grid).reshape(2, -1) + 0.5
        left, top, right, bottom = self.part or (np.nan,) * 4
        x, y = left + across / columns * (right - left), top + down / rows * (bottom - top)
        return np.stack([x - 0.5, y - 0.5], 1).round(1)

    def locate(self, grid: tuple[int, int]) -> dict[str, NDArray[np.generic]]:
        rows, columns = np.indices(grid, np.int32).reshape(2, -1)
        x, y = self.find_pixels(grid).T
        return {"row": rows, "column": columns, "x": x, "y": y}

    def find_pixel(self, place: int, grid: tuple[int, int]) -> Pixel:
        x, y = self.find_pixels(grid)[place]
        return (float(x), float(y)) if self.part else (None, None)


def middle_of(place: int, grid: tuple[int, int]) -> tuple[float, float]:
    """Return the middle (x, y) of a place, as shares of the width and the height of the grid."""
    rows, columns = grid
    return (place % columns + 0.5) / columns, (place // columns + 0.5) / rows


def list_files(run: Run) -> dict[str, str]:
    return {
        image["key"]: unquote(image.get("file", ""), errors="surrogateescape")
        for image in run.manifest["images"]
    }


def name_images(run: Run) -> dict[str, str]:
    """Map keys to paths below the folder that all images share, such as ``circles/05.png``."""
    names = shorten_paths({key: reversible(file) or key for key, file in list_files(run).items()})
    found = Counter(names.values())
    return {key: name if found[name] == 1 else key for key, name in names.items()}


def shorten_paths(files: Mapping[str, str]) -> dict[str, str]:
    """Return paths without the folder that all of them share; ``files`` has them by image key."""
    shared = len(os.path.commonprefix([*files.values()]).rpartition("/")[0])  # noqa: RUF071  letters
    return {key: file[shared:].lstrip("/") for key, file in files.items()}


def list_contents(run: Run) -> dict[str, str]:
    return {image["key"]: image["sha256"] for image in run.manifest["images"]}


def match_contents(run: Run, other: Run) -> dict[str, str]:
    """Map keys of images in ``run`` to keys of images in ``other`` with the same SHA-256."""
    one, two = list_contents(run), list_contents(other)
    return {key: same for key, same in match_images(one, two) if one[key] == two[same]}


def read_fact(run: Run, name: str, kind: type[T]) -> T:
    try:
        return convert(run.manifest.get(name), kind)
    except DamagedError as error:
        raise cannot_read(run.folder / MANIFEST, error) from error


def list_geometry(run: Run) -> dict[str, Geometry]:
    images = read_fact(run, "images", tuple[ImageResult, ...])
    for image in images:
        part = image.part
        if part is not None and not (len(part) == 4 and part[0] < part[2] and part[1] < part[3]):
            damage = DamagedError(f"the part of {image.key!r} that the network saw is no area")
            raise cannot_read(run.folder / MANIFEST, damage)
    return {
        image.key: Geometry(for_page(image.file), (image.width, image.height), image.part)
        for image in images
    }


def find_image(files: Mapping[str, str], name: str) -> str:
    """Return the key of the image that ``name`` means: its key, its path, or the end of its path.

    The end is the file name, or the part below the folder that all images share. ``files`` has
    image paths by key. Raise a RequestError unless exactly one image matches.
    """
    if name in files:
        return name
    last = {key: PurePosixPath(file).name for key, file in files.items()}
    for shown in (files, shorten_paths(files), last):
        found = [key for key, file in shown.items() if file == name]
        if len(found) == 1:
            return found[0]
        if found:
            what = f"{name!r} is the name of {len(found)} images of the run"
            raise RequestError(what, f"use a key: {', '.join(found[:5])}")
    known = [*files, *files.values()]
    what = f"the run has no image {name!r}"
    raise RequestError(what, hint_near(name, known, f"there are: {', '.join(known[:5])}"))
