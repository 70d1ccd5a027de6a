"""Draw Grad-CAM, pixel saliency and the channels of a layer beside the network's input."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

from hookcli.config import EMBER
from hookcli.records.pictures import LEVELS
from hookcli.records.text import shape_text
from hookcli.render.draw.canvas import (
    MARGIN,
    NOT_FINITE_COLOUR,
    NOTE_SIZE,
    Canvas,
    heading_height,
    load_palette,
    measure_text,
    new_canvas,
    wrap_heading,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.records.images import Box

SEEN_NOTE = "as the network saw it"
_SMALLEST = 224  # pixels; smaller pictures are enlarged by an integer factor
_GAP, _CAPTION, _BAR = 12, 16, 8
_DIM = 0.55  # brightness of the picture below a map
_DENSEST, _DARKEST = 0.9, 40  # opacity of the largest value, colour level of the smallest value
_GLOW = ((14, 14, 18), (255, 236, 170))
_CLIP = 99
_BOX = (14, 14, 18), (255, 255, 255)  # the frame's outside and middle


@dataclass(frozen=True, slots=True)
class _Panel:
    pixels: NDArray[np.uint8]  # (H, W, 3)
    caption: str
    bar: NDArray[np.uint8]  # (1, W, 3): the colours from ``start`` to ``end``
    end: str  # the value at the right end of the bar
    start: str = "0"


def draw_heat(
    seen: bytes, values: NDArray[np.float32], heading: Sequence[str], box: Box | None = None
) -> Canvas:
    """Draw the network's input (the image file ``seen``) beside a grey copy with a Grad-CAM on it.

    ``values`` (h, w) is the Grad-CAM, of which only positive values are drawn. If no value is
    positive, or if some are not finite, a note replaces the copy. ``box`` (left, top, right and
    bottom, as shares of the input) is drawn on both.
    """
    picture = Image.open(io.BytesIO(seen)).convert("RGB")
    if trouble := find_trouble(values):
        note = f"map of {shape_text(values.shape)}; not drawn: {trouble}"
        return _draw(picture, None, [*heading, note])
    largest = float(values.max())
    note = f"map of {_size_note(values, picture)}; largest value {largest:.3g}"
    over = lay_over(picture, _resize(values / largest, picture))
    if box is not None:
        picture, over = _draw_box(picture, box), np.asarray(_draw_box(Image.fromarray(over), box))
    panel = _Panel(over, "the map over it", draw_bar(picture.width), f"{largest:.3g}")
    return _draw(picture, panel, [*heading, note])


def draw_places(seen: bytes, values: NDArray[np.float32], title: str, of: str) -> Canvas:
    """Draw the network's input (the image file ``seen``) beside a grey copy with a map on it."""
    # ``values`` (h, w) is the map of a layer, and ``of`` says in words what its values are.
    picture = Image.open(io.BytesIO(seen)).convert("RGB")
    is_finite = np.isfinite(values)
    broken = int((~is_finite).sum())
    finite = values[is_finite] if is_finite.any() else np.zeros(1)
    low, high = float(finite.min()), float(finite.max())
    notes = [of, f"map of {_size_note(values, picture)}"]
    if broken:
        notes.append(f"{broken} of {values.size} values are NaN or Inf: cyan")
    if low == high:
        what = "no value is finite" if broken == values.size else f"every place holds {low:.3g}"
        return _draw(picture, None, [title, "; ".join([*notes[:2], f"not drawn: {what}"])])
    shares = np.where(is_finite, (values / 2 - low / 2) / (high / 2 - low / 2), 0)
    over = lay_over(picture, _resize(shares, picture))
    over[_resize((~is_finite).astype(np.float32), picture) > 0.5] = NOT_FINITE_COLOUR
    panel = _Panel(over, of, draw_bar(picture.width), f"{high:.3g}", f"{low:.3g}")
    width = 2 * picture.width * _factor(picture) + _GAP
    return _draw(picture, panel, wrap_heading([title, "; ".join(notes)], width))


def draw_saliency(seen: bytes, values: NDArray[np.float32], heading: Sequence[str]) -> Canvas:
    """Draw the network's input (the image file ``seen``) beside a map of its saliency."""
    picture = Image.open(io.BytesIO(seen)).convert("RGB")
    note = f"largest |gradient| over the colours, {_size_note(values, picture)}"
    if trouble := find_trouble(values):
        return _draw(picture, None, [*heading, f"saliency; not drawn: {trouble}"])
    largest, clip = float(values.max()), float(np.percentile(values, _CLIP))
    end = clip or largest  # the percentile is 0 if fewer than 1 % of the pixels have a gradient
    lightest = f"the {_CLIP}th percentile" if clip else "the largest"
    scale = f"lightest from {lightest} ({end:.3g}) up; largest value {largest:.3g}"
    glow = _glow(_resize(values / end, picture))
    panel = _Panel(glow, "saliency", _glow(_ramp(picture.width)), f"{end:.3g}")
    return _draw(picture, panel, [*heading, note, scale])


def find_trouble(values: NDArray[np.float32]) -> str:
    """Return why the values of a Grad-CAM or a saliency map cannot be drawn; "" if they can."""
    if broken := int((~np.isfinite(values)).sum()):
        return f"{broken} of {values.size} values are NaN or Inf"
    if values.max() > 0:
        return ""
    return "no value is positive" if values.min() < 0 else "it is zero everywhere"


def _draw_box(picture: Image.Image, box: Box) -> Image.Image:
    drawn, longest = picture.copy(), max(picture.size)
    sides = [share * length for share, length in zip(box, picture.size * 2, strict=True)]
    pen, line = ImageDraw.Draw(drawn), max(1, longest // 320)
    pen.rectangle(sides, outline=_BOX[0], width=3 * line)
    inner = (sides[0] + line, sides[1] + line, sides[2] - line, sides[3] - line)
    if inner[0] < inner[2] and inner[1] < inner[3]:
        pen.rectangle(inner, outline=_BOX[1], width=line)
    return drawn


def _size_note(values: NDArray[np.float32], picture: Image.Image) -> str:
    own, drawn = values.shape, (picture.height, picture.width)
    if own == drawn:
        return shape_text(own)
    return f"{shape_text(own)} {'enlarged' if own < drawn else 'shrunk'} to {shape_text(drawn)}"


def _resize(shares: NDArray[np.float32], picture: Image.Image) -> NDArray[np.float32]:
    image = Image.fromarray(shares.clip(0, 1).astype(np.float32))
    return np.asarray(image.resize(picture.size, Image.Resampling.BILINEAR))


def _ramp(width: int) -> NDArray[np.float32]:
    return np.linspace(0, 1, width, dtype=np.float32)[None]


def choose_colours(shares: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return colours (…, 3), 0 to 255, and opacities (…), 0 to 1, for ``shares`` from 0 to 1."""
    table = np.array(load_palette(EMBER), np.float32).reshape(-1, 3)
    colours = table[(_DARKEST + shares * (LEVELS - 1 - _DARKEST)).round().astype(int)]
    return colours, (_DENSEST * np.sqrt(shares)).astype(np.float32)


def lay_over(picture: Image.Image, shares: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Lay a map (H, W), 0 to 1, over a grey copy of a picture; return RGB pixels (H, W, 3)."""
    return _mix(np.asarray(picture.convert("L"), np.float32) * _DIM, shares)


def draw_bar(width: int) -> NDArray[np.uint8]:
    """Return a colour bar (1, width, 3): the colours from a map's smallest value to its largest."""
    return _mix(np.full((1, width), 60, np.float32), _ramp(width))


def _mix(grey: NDArray[np.float32], shares: NDArray[np.float32]) -> NDArray[np.uint8]:
    colours, cover = choose_colours(shares)
    mixed = grey[..., None] * (1 - cover[..., None]) + colours * cover[..., None]
    pixels: NDArray[np.uint8] = mixed.round().astype(np.uint8)
    return pixels


def _glow(shares: NDArray[np.float32]) -> NDArray[np.uint8]:
    dark, light = np.array(_GLOW, np.float32)
    pixels: NDArray[np.uint8] = (dark + shares[..., None] * (light - dark)).round().astype(np.uint8)
    return pixels


def _factor(picture: Image.Image) -> int:
    return max(1, -(-_SMALLEST // max(picture.size)))


def _draw(picture: Image.Image, panel: _Panel | None, heading: Sequence[str]) -> Canvas:
    factor = _factor(picture)
    size = width, height = picture.width * factor, picture.height * factor
    top, right = heading_height(heading) + _CAPTION, MARGIN + width + _GAP
    below = top + height + 4
    columns = 2 if panel else 1
    canvas = new_canvas(heading, columns * (width + _GAP) - _GAP, 2 * _CAPTION + height + _BAR)
    write_text(canvas, SEEN_NOTE, (MARGIN, top - _CAPTION), size=NOTE_SIZE, width=width)
    canvas.photos.append((picture.resize(size, Image.Resampling.NEAREST), (MARGIN, top)))
    if panel:
        write_text(canvas, panel.caption, (right, top - _CAPTION), size=NOTE_SIZE, width=width)
        write_text(canvas, panel.start, (right, below + _BAR + 1), size=NOTE_SIZE, width=width)
        end = right + width - measure_text(panel.end, NOTE_SIZE)
        write_text(canvas, panel.end, (end, below + _BAR + 1), size=NOTE_SIZE, width=width)
        beside, bar = Image.fromarray(panel.pixels), Image.fromarray(panel.bar)
        canvas.photos.append((beside.resize(size, Image.Resampling.NEAREST), (right, top)))
        bar = bar.resize((width, _BAR), Image.Resampling.NEAREST)
        canvas.photos.append((bar, (right, below)))
    return canvas
