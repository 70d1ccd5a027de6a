"""Open the picture of a call's feature maps in a finished run, or its part of a sheet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookcli.errors import RequestError
from hookcli.outside.documents import DamagedError, decode
from hookcli.outside.png import MOST_BYTES, decode_png
from hookcli.reading.run_files import AGAIN, cannot_read, name_close, quote
from hookcli.records.pictures import LABEL_ROW, Grid
from hookcli.store.locations.names import DOCUMENT, is_sheet

if TYPE_CHECKING:
    from PIL import Image

    from hookcli.reading.run_files import RunFiles
    from hookcli.records.pictures import TileBoxes


@dataclass(frozen=True, slots=True)
class Pictures:
    grids: tuple[Grid, ...]


def find_grid(files: RunFiles, call_id: str, image_key: str | None) -> Grid:
    try:
        grids = decode(files.read(DOCUMENT), Pictures).grids
    except (OSError, DamagedError) as error:
        raise cannot_read(files.location / DOCUMENT, error) from error
    if not grids:
        hint = f"{AGAIN}, with `grids='layers'`"
        raise RequestError(f"the run in {quote(files.location)} drew no grids", hint)
    if not (of_call := [grid for grid in grids if grid.call_id == call_id]):
        known = dict.fromkeys(grid.call_id for grid in grids)
        raise RequestError(f"no grid shows {call_id!r}", name_close(call_id, known))
    for grid in of_call:
        if image_key in (None, grid.image):
            return grid
    keys = [grid.image for grid in of_call]
    what = f"no grid shows {call_id!r} for an image {image_key!r}"
    raise RequestError(what, name_close(str(image_key), keys))


def open_grid(files: RunFiles, grid: Grid) -> Image.Image:
    try:
        picture = decode_png(files.read(grid.file, MOST_BYTES))
    except (OSError, ValueError, RuntimeError) as error:
        raise cannot_read(files.location / grid.file, error) from error
    if not is_sheet(grid.file):
        return picture
    if grid.places is None:
        hint = f"see the whole sheet, or {AGAIN} with `grids='layers'`"
        raise RequestError(f"{grid.call_id!r} has no feature maps of its own in {grid.file}", hint)
    try:
        return picture.crop(_find_part(grid.places, len(grid.channels), picture.size))
    except (ZeroDivisionError, ValueError) as error:
        damage = DamagedError(f"the tiles of {grid.call_id!r} are not in the picture")
        raise cannot_read(files.location / DOCUMENT, damage) from error


def _find_part(boxes: TileBoxes, tiles: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the box (left, top, right, bottom) of a layer's name, labels and tiles in a sheet."""
    # ``size`` is that of the sheet. Raises a ValueError if the box is not inside the sheet.
    columns = min(tiles, boxes.columns)
    rows = -(-tiles // boxes.columns)
    left, top = boxes.left, boxes.top
    right = left + (columns - 1) * boxes.step_x + boxes.width
    bottom = top + (rows - 1) * boxes.step_y + boxes.height
    if not (0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]):
        raise ValueError("outside the picture")
    return left, max(0, top - 2 * LABEL_ROW), right, bottom
