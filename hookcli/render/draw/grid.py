"""Lay out tiles and bars of feature maps in a grid or sheet: columns, gaps, and channel labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hookcli.records.pictures import LABEL_ROW, LEVELS, MIDDLE, TileBoxes
from hookcli.render.draw.canvas import (
    BACKGROUND,
    LABEL_SIZE,
    MARGIN,
    NOTE_SIZE,
    Canvas,
    fill_bars,
    heading_height,
    measure_text,
    new_canvas,
    wrap_heading,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.render.draw.canvas import Pixels

_GAP = 4
_BAR_HEIGHT, _BARS_A_ROW = 72, 256
_SHEET_HEIGHT = 1600  # pixels; a taller sheet gets a second column
_STRIP = 512


def draw_grid(
    tiles: Pixels, labels: Sequence[str], heading: Sequence[str], tile_size: int
) -> tuple[Canvas, TileBoxes]:
    cells = _enlarge(tiles, tile_size)
    count, height, width = cells.shape
    widest = max([width, *(measure_text(label, LABEL_SIZE) for label in labels)])
    step_x, step_y = widest + _GAP, height + LABEL_ROW + _GAP
    square = (count * step_y / step_x) ** 0.5
    near = range(max(1, round(square * 0.75)), min(count, round(square * 1.4)) + 1)
    columns = min(near, key=lambda each: (-count % each, abs(each - square)), default=1)
    whole = columns * step_x - _GAP
    heading = wrap_heading(heading, whole)
    top = heading_height(heading) + LABEL_ROW
    canvas = new_canvas(heading, whole, -(-count // columns) * step_y)
    for index, (cell, label) in enumerate(zip(cells, labels, strict=True)):
        y, x = top + index // columns * step_y, MARGIN + index % columns * step_x
        write_text(canvas, label, (x, y - LABEL_ROW), size=LABEL_SIZE, width=step_x)
        canvas.pixels[y : y + height, x : x + width] = cell
    return canvas, TileBoxes(MARGIN, top, width, height, step_x, step_y, columns)


def draw_maps(levels: Pixels, columns: int) -> Pixels:
    """Return maps (K, h, w) side by side, in rows of ``columns`` maps, as one array."""
    count, height, width = levels.shape
    rows = -(-count // columns)
    cells = np.zeros((rows * columns, height, width), np.uint8)
    cells[:count] = levels
    tiled = cells.reshape(rows, columns, height, width).swapaxes(1, 2)
    return tiled.reshape(rows * height, columns * width)


def draw_bars(
    values: NDArray[np.float32], heading: Sequence[str], *, signed: bool = False
) -> Canvas:
    finite = np.isfinite(values)
    low = min(0.0, float(values[finite].min(initial=0)))
    span = max(0.0, float(values[finite].max(initial=0))) - low or 1.0
    thick = max(1, min(8, 512 // max(1, len(values))))
    rows = -(-len(values) // _BARS_A_ROW)
    width = min(len(values), _BARS_A_ROW) * max(2, thick)
    heading = wrap_heading(heading, width)
    canvas = new_canvas(heading, width, rows * (_BAR_HEIGHT + LABEL_ROW + _GAP))
    for row in range(rows):
        y = heading_height(heading) + row * (_BAR_HEIGHT + LABEL_ROW + _GAP)
        shown = values[row * _BARS_A_ROW : (row + 1) * _BARS_A_ROW]
        write_text(canvas, f"from {row * _BARS_A_ROW}", (MARGIN, y), size=LABEL_SIZE, width=width)
        shares = (np.where(np.isfinite(shown), shown, 0) - low) / span
        own = MIDDLE + 80 * np.sign(shown) if signed else 80 + shares * 90  # visible in both themes
        levels = np.where(np.isfinite(shown), own, LEVELS).astype(np.uint8)
        strip = fill_bars(shown, levels, low, span, _BAR_HEIGHT).repeat(max(2, thick), 1)
        rows_of_strip = slice(y + LABEL_ROW, y + LABEL_ROW + _BAR_HEIGHT)
        canvas.pixels[rows_of_strip, MARGIN : MARGIN + strip.shape[1]] = strip
    return canvas


def draw_sheet(
    rows: Sequence[tuple[str, Pixels, Sequence[str]]], heading: Sequence[str], tile_size: int
) -> tuple[Canvas, list[TileBoxes]]:
    # If a single column would be too tall, the rows continue in further columns.
    cells = [_enlarge(tiles, tile_size) for _, tiles, _ in rows]
    pairs = zip(rows, cells, strict=True)
    blocks = [_sheet_row(name, each, labels) for (name, _, labels), each in pairs]
    columns = _stack(blocks, _column_height(blocks))
    widths = [max(block.size[0] for block in column) + _GAP * 4 for column in columns]
    tallest = max((sum(block.size[1] for block in column) for column in columns), default=0)
    canvas = new_canvas(heading, sum(widths), tallest)
    x = MARGIN
    shapes = (each.shape for each in cells)
    boxes = []
    for column, width in zip(columns, widths, strict=True):
        y = heading_height(heading)
        for block in column:
            canvas.add(block, x, y)
            count, high, wide = next(shapes)
            top, steps = y + 2 * LABEL_ROW, (wide + _GAP, high + _GAP)
            boxes.append(TileBoxes(x, top, wide, high, *steps, columns=max(1, count)))
            y += block.size[1]
        x += width
    return canvas, boxes


def _column_height(blocks: Sequence[Canvas]) -> int:
    if not blocks:
        return 1
    heights = [block.size[1] for block in blocks]
    total, tallest = sum(heights), max(heights)
    widest = max(block.size[0] for block in blocks)
    limit = max(_SHEET_HEIGHT, tallest, math.isqrt(total * widest))
    columns = -(-total // limit)
    return total if columns == 1 else -(-total // columns) + tallest  # columns of like heights


def _stack(blocks: Sequence[Canvas], height: int) -> list[list[Canvas]]:
    columns: list[list[Canvas]] = []
    used = height
    for block in blocks:
        if used + block.size[1] > height:
            columns.append([])
            used = 0
        columns[-1].append(block)
        used += block.size[1]
    return columns


def _sheet_row(name: str, cells: Pixels, labels: Sequence[str]) -> Canvas:
    count, height, width = cells.shape
    texts = [(name, NOTE_SIZE), *((label, LABEL_SIZE) for label in labels[:1])]
    whole = max(count * (width + _GAP), *(measure_text(*text) for text in texts))
    row = Canvas(np.full((height + 2 * LABEL_ROW + _GAP, whole), BACKGROUND, np.uint8))
    write_text(row, name, (0, 0), size=NOTE_SIZE, width=whole)
    room = width + _GAP if count > 1 else whole
    widest = max((measure_text(label, LABEL_SIZE) for label in labels), default=0)
    for index, (cell, label) in enumerate(zip(cells, labels, strict=True)):
        x = index * (width + _GAP)
        if widest <= room:  # a number that is cut off would read as a different number
            write_text(row, label, (x, LABEL_ROW + 1), size=LABEL_SIZE, width=room)
        row.pixels[2 * LABEL_ROW : 2 * LABEL_ROW + height, x : x + width] = cell
    return row


def draw_strip(values: NDArray[np.float32], height: int, *, signed: bool = False) -> Pixels:
    step = max(1, -(-len(values) // _STRIP))
    starts = np.arange(0, len(values), step)
    lengths = np.diff([*starts, len(values)])
    shown = np.add.reduceat(values, starts) / lengths if step > 1 else values
    finite = np.isfinite(shown)
    low, high = shown[finite].min(initial=0), shown[finite].max(initial=0)
    if signed:
        levels = MIDDLE + shown / (max(-low, high) or 1) * (LEVELS - 1 - MIDDLE)
    else:
        levels = (np.where(finite, shown, low) - low) / ((high - low) or 1) * (LEVELS - 1)
    levels = np.where(finite, levels.round(), LEVELS).astype(np.uint8)
    columns = levels.repeat(-(-256 // max(1, len(levels))))
    return np.broadcast_to(columns, (height // 3, len(columns)))


def _enlarge(tiles: Pixels, tile_size: int) -> Pixels:
    factor = max(1, tile_size // max(1, *tiles.shape[1:]))
    return tiles.repeat(factor, 1).repeat(factor, 2)
