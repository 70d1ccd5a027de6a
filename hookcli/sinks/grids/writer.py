"""Grids and sheets written as PNG files, encoded on threads while the model goes on."""

from __future__ import annotations

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from hookcli.feature_maps import Bars, Tiles
from hookcli.files import safe_name, write_atomic
from hookcli.records import shape_text
from hookcli.sinks.grids import drawing
from hookcli.sinks.grids.canvas import load_palette, to_image

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from PIL import Image

    from hookcli.config import GridStyle
    from hookcli.feature_maps import Picture
    from hookcli.records import Call
    from hookcli.sinks.grids.canvas import Pixels

_SHEET_TOP = 12


class GridWriter:
    """Writes pictures into a run folder; ``finish`` waits for them and reports what failed."""

    def __init__(self, out_dir: Path, style: GridStyle) -> None:
        self._out_dir = out_dir
        self._style = style
        self._palette = load_palette(style.colormap)
        self._threads = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2 + 1))
        self._pending: list[Future[Path]] = []

    @property
    def mode(self) -> str:
        """``layers``, ``sheet`` or ``none``."""
        return self._style.mode

    def write_grid(self, picture: Picture) -> str:
        """Queue one layer's grid; returns its file, relative to the run folder."""
        file = f"grids/{picture.image}/{grid_name(picture.call)}"
        self._queue(file, render_grid, picture)
        return file

    def write_sheet(self, image_key: str, rows: Sequence[Picture]) -> str:
        """Queue one picture of all layers; returns its file, relative to the run folder."""
        file = f"sheets/{image_key}.png"
        self._queue(file, render_sheet, image_key, rows)
        return file

    def finish(self) -> None:
        """Wait until everything is on disk.

        Raises:
            OutputError: a file could not be written.
        """
        for future in self._pending:
            future.result()

    def close(self) -> None:
        """Drop what has not been started; what is being written gets complete."""
        self._threads.shutdown(cancel_futures=True)

    def _queue(self, file: str, render: Callable[..., Pixels], *arguments: object) -> None:
        self._pending.append(self._threads.submit(self._write, file, render, *arguments))

    def _write(self, file: str, render: Callable[..., Pixels], *arguments: object) -> Path:
        canvas = render(*arguments, self._style)
        return write_atomic(self._out_dir / file, _encode(to_image(canvas, self._palette)))


def grid_name(call: Call) -> str:
    """``003_layer1.0.relu#1.png``: order, module path, call index, output key, side."""
    index = f"#{call.call_index}" if call.call_index else ""
    key = f".{safe_name(call.output_key)}" if call.output_key else ""
    side = "" if call.side == "output" else f".{call.side}"
    return f"{call.order:03d}_{safe_name(call.layer.label)}{index}{key}{side}.png"


def render_grid(picture: Picture, style: GridStyle) -> Pixels:
    """One layer's picture as palette indices; the same input gives the same picture."""
    title = f"{picture.call.id}   {shape_text(picture.shape)}   {picture.layout.name}"
    if isinstance(picture.content, Tiles):
        title += _frame_note(picture)
    content = picture.content
    if isinstance(content, Bars):
        return drawing.draw_bars(content.values.numpy(), [title, _bars_note(content)])
    labels = [str(channel) for channel in content.channels.tolist()]
    notes = [_channels_note(content, style), _scale_note(content, style)]
    return drawing.draw_grid(content.levels.numpy(), labels, [title, *notes], style.tile)


def render_sheet(image_key: str, rows: Sequence[Picture], style: GridStyle) -> Pixels:
    """All layers' best channels, a row a layer."""
    parts = []
    for picture in rows:
        name = f"{picture.call.id}   {shape_text(picture.shape)}"
        if isinstance(picture.content, Bars):
            values = picture.content.values.numpy()
            strip = drawing.draw_strip(values, style.tile)
            parts.append((name, strip[None], [_bars_note(picture.content, "column")]))
        else:
            tiles = picture.content
            labels = [str(channel) for channel in tiles.channels[:_SHEET_TOP].tolist()]
            parts.append((name, tiles.levels[:_SHEET_TOP].numpy(), labels))
    count = min(_SHEET_TOP, style.top or _SHEET_TOP)
    note = f"up to {count} channels of each layer, {_order_note(style)}; {_scale_text(style)}"
    return drawing.draw_sheet(parts, [image_key, note], style.tile)


def _encode(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def _frame_note(picture: Picture) -> str:
    """Which frame of a clip is shown; empty for pictures."""
    axis = {"NCDHW": 2, "NDHWC": 1}.get(picture.layout.name)
    if axis is None:
        return ""
    frames = picture.shape[axis]
    return f"   the middle frame, {frames // 2 + 1} of {frames}"


def _channels_note(tiles: Tiles, style: GridStyle) -> str:
    shown = len(tiles.channels)
    count = f"all {shown}" if shown == tiles.total else f"{shown} of {tiles.total}"
    return f"{count} channels {_order_note(style)}, the number above each counted from 0"


def _order_note(style: GridStyle) -> str:
    if style.channels is not None:
        return "as asked for"
    return "in order" if style.rank == "index" else f"by {style.rank}"


def _scale_note(tiles: Tiles, style: GridStyle) -> str:
    height, width = tiles.shown
    drawn = tiles.levels.shape[1:]
    small = (
        f"; maps of {height}x{width} shown at {drawn[0]}x{drawn[1]}" if height > drawn[0] else ""
    )
    return _scale_text(style) + small


def _scale_text(style: GridStyle) -> str:
    if style.scale == "layer":
        return "dark to light: the layer's minimum to maximum"
    return "dark to light: each channel's own minimum to maximum"


def _bars_note(bars: Bars, one: str = "bar") -> str:
    if not bars.per_channel:
        return f"no spatial form: the values in order, {bars.run} to a {one}"
    if bars.run > 1:
        return f"no spatial form: the mean of each of {len(bars.values)} channels"
    return f"no spatial form: the {len(bars.values)} values"
