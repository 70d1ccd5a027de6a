"""The places of attention tokens on the image, as cells of a grid over the image."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli.activations.trail import LEARNED, LOST, OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

NO_PLACE, PADDING = -1, -2

_NOT_FOLLOWED = "the places of its tokens could not be followed from the pixels"
_BROKEN = "its tokens do not divide their part of the image evenly"
_NOWHERE = "its tokens represent no part of the image, as far as they could be followed"
_ROUNDED, _UNEVEN = 0.5, 0.25  # in tokens: the most that rounding adds; the offset of a crop's edge


@dataclass(frozen=True, slots=True, eq=False)
class TokenPlaces:
    """The places of the queries and of the keys of one attention call, for one image.

    A place is a cell of a grid over the image, counted row by row from 0. A token that covers no
    part of the image, such as a class token, has ``NO_PLACE``. A cell outside the image that fills
    up a window is ``PADDING``.

    Attributes:
        shape: the leading axes of one image's probabilities, all but queries and keys; axes that
            mix windows and heads are split in two.
        window_axes: the axes of ``shape`` that count windows. The other axes count heads.
        queries: the place of each query, (windows, queries).
        keys: the place of each key, (windows, keys).
        query_grid: the rows and columns of the grid of the queries, for a clip after the number of
            frames; empty if the queries have no places.
        key_grid: the same for the keys, which are fewer if the model pools them.
        unknown: why the places are unknown, or why no token has one; all places are then
            ``NO_PLACE``. Empty if any token has a place.
        is_turned: the model has the probabilities as (…, keys, queries).
    """

    shape: tuple[int, ...]
    window_axes: tuple[int, ...]
    queries: Tensor
    keys: Tensor
    query_grid: tuple[int, ...] = ()
    key_grid: tuple[int, ...] = ()
    unknown: str = ""
    is_turned: bool = False

    @property
    def windows(self) -> int:
        """The number of windows: 1 where every query sees the whole image."""
        return len(self.queries)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return math.prod(self.shape) // self.windows

    def turn(self, probabilities: Tensor) -> Tensor:
        """Return probabilities as (…, queries, keys)."""
        return probabilities.transpose(-2, -1) if self.is_turned else probabilities

    def unlike(self, other: TokenPlaces | None, reason: str) -> TokenPlaces:
        """Return these places, or no places with this reason if another forward's places differ."""
        if other is None or self.unknown or self._is_like(other):
            return self
        queries, keys = (torch.full_like(part, NO_PLACE) for part in (self.queries, self.keys))
        return replace(self, queries=queries, keys=keys, query_grid=(), key_grid=(), unknown=reason)

    def _is_like(self, other: TokenPlaces) -> bool:
        facts = ("shape", "window_axes", "query_grid", "key_grid", "is_turned")
        return (
            all(getattr(self, fact) == getattr(other, fact) for fact in facts)
            and torch.equal(self.queries, other.queries)
            and torch.equal(self.keys, other.keys)
        )

    def arrange(self, probabilities: Tensor) -> Tensor:
        """Return one image's probabilities as (windows, heads, queries, keys), turned if needed."""
        *_, queries, keys = probabilities.shape
        split = probabilities.reshape(*self.shape, queries, keys)
        heads = [axis for axis in range(len(self.shape)) if axis not in self.window_axes]
        last = len(self.shape)
        ordered = split.permute(*self.window_axes, *heads, last, last + 1)
        return ordered.reshape(self.windows, self.heads, queries, keys)


def find_places(
    queries: Tensor, keys: Tensor, sizes: Sequence[int], collapsed: Collection[int] = ()
) -> TokenPlaces:
    """Return the places of queries and keys on an image, or a clip, of these sizes.

    The trails (…, L) of queries and (…, M) of keys have the same leading axes. ``collapsed`` are
    the axes of the image that the model has reduced to a single line.
    """
    queries, keys = queries.cpu(), keys.cpu()
    both = torch.cat([queries, keys], -1)
    shape: list[int] = []
    windows: list[int] = []
    for axis, length in enumerate(both.shape[:-1]):
        heads = _run_length(both, axis)
        if heads < length:
            windows.append(len(shape))
        shape += [length] if heads in (1, length) else [length // heads, heads]
    first = tuple(slice(None) if axis in windows else 0 for axis in range(len(shape)))
    at = [part.reshape(*shape, -1)[first].reshape(-1, part.shape[-1]) for part in (queries, keys)]
    queries, keys = (torch.full(part.shape, NO_PLACE) for part in at)
    unknown = TokenPlaces(tuple(shape), tuple(windows), queries, keys)
    if any(bool((part <= LOST).any()) for part in at):  # or WEIGHTS
        return replace(unknown, unknown=_NOT_FOLLOWED)
    (query_cells, query_grid), (key_cells, key_grid) = (
        _cells(part, other, sizes, collapsed) for part, other in (at, reversed(at))
    )
    if query_cells is None or key_cells is None:
        return replace(unknown, unknown=_BROKEN)
    why = "" if query_grid or key_grid else _NOWHERE
    return TokenPlaces(
        tuple(shape),
        tuple(windows),
        query_cells,
        key_cells,
        query_grid=query_grid,
        key_grid=key_grid,
        unknown=why,
    )


def _cells(
    pixels: Tensor, others: Tensor, sizes: Sequence[int], collapsed: Collection[int]
) -> tuple[Tensor | None, tuple[int, ...]]:
    """Return the cells of these pixels in a grid over the image, and the size of the grid.

    The cells are None if the pixels fit no grid over the whole image. A single line takes the grid
    of ``others`` if it is one of their lines, because some models compute attention for a few
    queries at a time.
    """
    cells = torch.full(pixels.shape, PADDING)
    cells[pixels == LEARNED] = NO_PLACE
    placed = pixels > OUTSIDE
    if not placed.any():
        return cells, ()
    rest, rest_of_others = (part[part > OUTSIDE].long() - 1 for part in (pixels, others))
    index, stride = torch.zeros_like(rest), 1
    grid: list[int] = []
    for axis, size in reversed(list(enumerate(sizes))):
        lines, rank = torch.unique(rest % size, return_inverse=True)
        of_lines, count = _cells_of_lines_or_others(
            lines, torch.unique(rest_of_others % size), size
        )
        if of_lines is None or (len(lines) == count == 1 < size and axis not in collapsed):
            return None, ()
        index += of_lines[rank] * stride
        stride *= count
        grid.insert(0, count)
        rest, rest_of_others = rest // size, rest_of_others // size
    cells[placed] = index
    return cells, tuple(grid)


def _cells_of_lines_or_others(
    lines: Tensor, others: Tensor, size: int
) -> tuple[Tensor | None, int]:
    """Return the cell of each line and the number of all cells; a single line needs ``others``."""
    if len(lines) == 1 < len(others) and bool((others == lines).any()):
        of_others, count = _cells_of_lines_or_others(others, others, size)
        return (None if of_others is None else of_others[others == lines]), count
    of_lines, count = _cells_of_lines(lines, size)
    if of_lines is None:  # in an image that the model flips, tokens are at their last pixels
        of_lines, count = _cells_of_lines((size - 1 - lines).flip(0), size)
        of_lines = None if of_lines is None else count - 1 - of_lines.flip(0)
    return of_lines, count


def _cells_of_lines(lines: Tensor, size: int) -> tuple[Tensor | None, int]:
    """Return the cell of each line of pixels with tokens, and the number of all cells.

    A token's position is its first pixel, so tokens that divide the image are at 0, step, 2 step,
    and so on, apart from rounding, and from padding after the image. If lines are missing, for
    example because the model crops the image, this counts cells from the image's edge. In a mirror
    image a token's position is its last pixel: if the model uses the image and its mirror image, a
    cell has both its first and its last line. The cells are None if the edge of a crop is not the
    edge of a cell, or if the lines are spaced unevenly.

    ``lines`` are in ascending order, and ``size`` is the number of lines of the image.
    """
    count, first = len(lines), int(lines[0])
    if count == 1:
        return (None if first else lines), 1
    gaps = lines.diff()
    low, high = int(gaps.min()), int(gaps.max())
    if low == 1 < high and bool((gaps[::2] == high).all() and (gaps[1::2] == 1).all()):
        fits = first == 0 and size == (high + 1) * count // 2
        return (torch.arange(count) // 2 if fits else None), count // 2
    step = (int(lines[-1]) - first) / (count - 1)
    if high <= 2 * low + 1 and first < step / 2 and -1 < size / step - count < _ROUNDED:
        return torch.arange(count), count
    places = lines / step
    cells, total = places.round().long(), round(size / step)
    uneven = max(float((places - cells).abs().max()), abs(size / step - total))
    fits = uneven <= _UNEVEN and bool(cells.diff().all()) and int(cells[-1]) < total
    return (cells if fits else None), total


def _run_length(places: Tensor, axis: int) -> int:
    """Return how many neighbours along an axis have the same places, as a window's heads do.

    It is 1 unless the axis consists of runs of the same length.
    """
    rows = places.movedim(axis, 0).flatten(1)
    starts = [0, *((rows[1:] != rows[:-1]).any(1).nonzero().flatten() + 1).tolist(), len(rows)]
    lengths = {end - start for start, end in itertools.pairwise(starts)}
    return lengths.pop() if len(lengths) == 1 else 1
