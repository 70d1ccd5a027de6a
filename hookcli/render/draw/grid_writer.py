"""Draw grids and sheets of feature maps in threads, write their files, and describe their tiles."""

from __future__ import annotations

import math
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.activations.feature_maps import Bars, Tiles
from hookcli.config import EMBER
from hookcli.outside.escape import for_page
from hookcli.records.pictures import ChannelMaps, Grid
from hookcli.records.text import shape_text
from hookcli.render.draw import grid as drawing
from hookcli.render.draw.canvas import (
    TIDE,
    colormap_of,
    load_map_palette,
    load_palette,
    to_image,
    to_png,
)
from hookcli.render.draw.picture_files import to_vector
from hookcli.store.locations import names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookcli.activations.feature_maps import Picture
    from hookcli.config import GridStyle
    from hookcli.records.layouts import Layout
    from hookcli.records.pictures import TileBoxes
    from hookcli.render.draw.canvas import Canvas

_SHEET_TOP = 12
_ERROR = 1 / 2000  # allowed rounding error of a minimum or maximum, as a share of the range
_MOST_DIGITS = 9  # enough to distinguish any two float32 values
_FAST = 1  # zlib's level: a higher level takes longer, and hardly shrinks the large maps
_FOCUS_ORDER = "by how much more they fire in the box"


class GridWriter:
    def __init__(self, write: Callable[[str, bytes], str], style: GridStyle, model: str) -> None:
        self.write = write
        self.style, self.model = style, model
        self._palette = load_palette(colormap_of(style), style.theme)
        self._map_palette = load_map_palette(colormap_of(style))
        self._threads = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2 + 1))
        self._pending: list[Future[list[Grid]]] = []

    def title_of(self, image_key: str) -> str:
        return f"{for_page(self.model)}   {for_page(image_key)}"

    def write_grid(self, picture: Picture) -> str:
        file = names.picture_file(names.GRIDS, picture.image, names.grid_name(picture.call))
        self._pending.append(self._threads.submit(self._write_grid, file, picture))
        return file

    def write_sheet(self, image_key: str, rows: Sequence[Picture]) -> str:
        file = names.sheet_file(image_key)
        self._pending.append(self._threads.submit(self._write_sheet, file, image_key, rows))
        return file

    def write_over_photo(self, file: str, canvas: Canvas) -> None:
        self._write(file, canvas, load_palette(EMBER, self.style.theme))

    def take(self) -> Callable[[], tuple[Grid, ...]]:
        """Empty the queue; return a function that waits for the queued files and describes them."""
        pending, self._pending = self._pending, []
        return lambda: tuple(grid for future in pending for grid in future.result())

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _write(self, file: str, canvas: Canvas, palette: list[int]) -> None:
        self.write(file, to_png(canvas.to_image(palette)))
        for other in names.list_formats(file, self.style.format)[1:]:
            self.write(other, to_vector(canvas, palette, self.style.format))

    def _write_grid(self, file: str, picture: Picture) -> list[Grid]:
        canvas, boxes = self._draw_grid(picture)
        self._write(file, canvas, self._palette)
        grid = _describe_grid(picture, file, canvas, boxes)
        return [replace(grid, maps=self._write_maps(picture, boxes))]

    def _draw_grid(self, picture: Picture) -> tuple[Canvas, TileBoxes | None]:
        content, style = picture.content, self.style
        form = f"{shape_text(picture.shape)}   {picture.layout.text}"
        title = f"{picture.call.id}   {form}   {self.title_of(picture.image)}"
        if isinstance(content, Bars):
            heading = [title, _bars_note(content)]
            return drawing.draw_bars(content.values.numpy(), heading, signed=style.signed), None
        labels = [str(channel) for channel in content.channels.tolist()]
        title += frame_note(picture.layout, picture.shape)
        heading = [title, _channels_note(content, style), _scale_note(content, style)]
        return drawing.draw_grid(content.levels.numpy(), labels, heading, style.tile)

    def _write_maps(self, picture: Picture, boxes: TileBoxes | None) -> ChannelMaps | None:
        content = picture.content
        if isinstance(content, Bars) or content.maps is None or boxes is None:
            return None
        levels = content.maps.numpy()
        image = to_image(drawing.draw_maps(levels, boxes.columns), self._map_palette)
        file = names.picture_file(names.MAPS, picture.image, names.grid_name(picture.call))
        self.write(file, to_png(image, compress_level=_FAST))
        size, shared = (levels.shape[1], levels.shape[2]), None
        if content.range is not None:
            low, high = content.range.tolist()
            error = (high - low) * _ERROR
            shared = (_shorten(low, error), _shorten(high, error))
        return ChannelMaps(file, size, content.shown, boxes.columns, self.style.signed, shared)

    def _write_sheet(self, file: str, image_key: str, rows: Sequence[Picture]) -> list[Grid]:
        canvas, boxes = _render_sheet(self.title_of(image_key), rows, self.style)
        self._write(file, canvas, self._palette)
        pairs = zip(rows, boxes, strict=True)
        return [_describe_grid(picture, file, canvas, box) for picture, box in pairs]


def _describe_grid(picture: Picture, file: str, canvas: Canvas, boxes: TileBoxes | None) -> Grid:
    content = picture.content
    if isinstance(content, Bars) or boxes is None:
        return Grid(picture.image, picture.call.id, file, canvas.size)
    shown = _SHEET_TOP if names.is_sheet(file) else None
    low, high, mean, spread = content.figures[:, :shown].tolist()
    errors = [(b - a) * _ERROR for a, b in zip(low, high, strict=True)]
    scores = [] if content.scores is None else content.scores[:shown].tolist()
    channels = tuple(content.channels[:shown].tolist())
    return Grid(
        picture.image,
        picture.call.id,
        file,
        size=canvas.size,
        places=boxes,
        channels=channels,
        low=tuple(map(_shorten, low, errors)),
        high=tuple(map(_shorten, high, errors)),
        mean=tuple(map(_shorten, mean)),
        spread=tuple(map(_shorten, spread)),
        score=tuple(map(_shorten, scores)),
    )


def _shorten(value: float, error: float = math.inf) -> float | None:
    """Round to 4 digits, or more for an error of at most ``error``; return None for NaN and Inf."""
    if not math.isfinite(value):
        return None
    short = (float(f"{value:.{digits}g}") for digits in range(4, _MOST_DIGITS))
    near = (each for each in short if abs(each - value) <= error)
    return next(near, float(f"{value:.{_MOST_DIGITS}g}"))


def _render_sheet(
    title: str, rows: Sequence[Picture], style: GridStyle
) -> tuple[Canvas, list[TileBoxes]]:
    parts = []
    for picture in rows:
        name = f"{picture.call.id}   {shape_text(picture.shape)}"
        if isinstance(picture.content, Bars):
            values = picture.content.values.numpy()
            strip = drawing.draw_strip(values, style.tile, signed=style.signed)
            parts.append((name, strip[None], [_bars_note(picture.content, "column")]))
        else:
            tiles = picture.content
            labels = [str(channel) for channel in tiles.channels[:_SHEET_TOP].tolist()]
            parts.append((name, tiles.levels[:_SHEET_TOP].numpy(), labels))
    count = min(_SHEET_TOP, style.top or _SHEET_TOP)
    focused = any(isinstance(p.content, Tiles) and p.content.scores is not None for p in rows)
    order = _FOCUS_ORDER if focused else _order_note(style)
    note = f"up to {count} channels of each layer, {order}; {_scale_text(style)}"
    return drawing.draw_sheet(parts, [title, note], style.tile)


def frame_note(layout: Layout, shape: Sequence[int]) -> str:
    if (axis := layout.frame_axis) is None:
        return ""
    frames = shape[axis]
    return f"   the middle frame, {frames // 2 + 1} of {frames}"


def _channels_note(tiles: Tiles, style: GridStyle) -> str:
    shown = len(tiles.channels)
    count = f"all {shown}" if shown == tiles.total else f"{shown} of {tiles.total}"
    order = _order_note(style) if tiles.scores is None else _FOCUS_ORDER
    return f"{count} channels {order}; numbers count from 0"


def _order_note(style: GridStyle) -> str:
    if style.channels is not None:
        return "as asked for"
    return "in order" if style.rank == "index" else f"by {style.rank}"


def _scale_note(tiles: Tiles, style: GridStyle) -> str:
    own, drawn, text = tiles.shown, tiles.levels.shape[1:], _scale_text(style)
    if own[0] <= drawn[0]:
        return text
    return f"{text}; maps of {shape_text(own)} shown at {shape_text(drawn)}"


def _scale_text(style: GridStyle) -> str:
    whose = "the layer's" if style.scale == "layer" else "each channel's"
    if not style.signed:
        limits = "minimum to maximum" if style.scale == "layer" else "own range"
        return f"dark to light: {whose} {limits}"
    colours, zero = "blue to orange", "grey is zero"
    if colormap_of(style) != TIDE:
        colours, zero = f"{style.colormap} from end to end", "its middle is zero"
    return f"{colours}: minus to plus {whose} largest magnitude; {zero}"


def _bars_note(bars: Bars, one: str = "bar") -> str:
    if not bars.per_channel:
        return f"no spatial form: the values in order, {bars.run} to a {one}"
    if bars.run > 1:
        return f"no spatial form: the mean of each of {len(bars.values)} channels"
    return f"no spatial form: the {len(bars.values)} values"
