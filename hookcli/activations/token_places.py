"""Find which cell of the image each attention token covers, and which axes count windows."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

# A trail holds, for each value of a tensor, the index of a pixel, from 1, or a constant:
# OUTSIDE for cells that ``pad`` added beside the image, LEARNED for tokens that do not come from
# one part of the image, LOST for tensors that hookcli could not follow, and WEIGHTS for weights
# that mix channels.
OUTSIDE, LEARNED, LOST, WEIGHTS = 0, -1, -2, -3


class Trail(NamedTuple):
    """Holds the index of the pixel from which each value of a tensor comes.

    A value of a product, such as queries times keys, comes from two pixels: ``own`` has the pixel
    of its row, and ``columns`` has the pixel of its column. For other tensors, ``columns`` is None.
    """

    own: Tensor  # in the shape of the tensor
    columns: Tensor | None = None

    @property
    def is_product(self) -> bool:
        own, columns = self
        if columns is None or own.dim() < 2:
            return False
        return not (varies(own, -1) or varies(columns, -2))

    @property
    def is_weights(self) -> bool:
        return self.own.numel() > 0 and int(self.own.reshape(-1)[0]) == WEIGHTS

    def change(self, change: Callable[[Tensor], Tensor]) -> Trail:
        return Trail(change(self.own), None if self.columns is None else change(self.columns))


def everywhere(value: int, tensor: Tensor) -> Tensor:
    return torch.tensor(value, dtype=torch.int32, device=tensor.device).expand(tensor.shape)


def varies(trail: Tensor, axis: int) -> bool:
    return trail.numel() > 0 and bool((trail != trail.narrow(axis, 0, 1)).any())


def sample(trail: Tensor, shape: Sequence[int]) -> Tensor:
    """Resize pixel indices (N, C, …) to ``shape`` by picking evenly spaced ones from channel 0."""
    picked = trail[:, :1]
    for axis in range(2, trail.dim()):
        step = torch.arange(shape[axis], device=trail.device) * trail.shape[axis] // shape[axis]
        picked = picked.index_select(axis, step)
    return picked.expand(*shape)


def reduce(trail: Tensor, *axes: Any, **options: Any) -> Tensor:
    """Return the trail of a reduction, such as a sum: the lowest pixel index on the reduced axes.

    ``trail`` has the pixel index of each value before the reduction. ``axes`` and ``options`` are
    the arguments of the function that reduces, such as ``dim=1``.
    """
    # A reduction of several pixels to one covers the whole image: its trail is ``LEARNED``.
    options.pop("dtype", None)
    first = torch.amin(trail, *axes, **options)
    of_all = varies(trail.reshape(-1), 0) and not varies(first.reshape(-1), 0)
    return everywhere(LEARNED, first) if of_all else first


def spread(
    trail: Tensor, inside: Sequence[str], in_output: Sequence[str], shape: Sequence[int]
) -> Tensor:
    # There is a letter for each axis; the product sums over letters that it does not have.
    summed = tuple(slice(None) if letter in in_output else 0 for letter in inside)
    kept = [letter for letter in inside if letter in in_output]
    ordered = trail[summed].permute([kept.index(each) for each in in_output if each in kept])
    new = tuple(slice(None) if letter in kept else None for letter in in_output)
    return ordered[new].expand(*shape)


def has_places(trail: Tensor) -> bool:
    return bool((trail > OUTSIDE).any())


def spreads_to(shape: Sequence[int], larger: Sequence[int]) -> bool:
    if len(shape) > len(larger):
        return False
    ends = zip(reversed(shape), reversed(larger), strict=False)
    return all(length in (1, wanted) for length, wanted in ends)


NO_PLACE, PADDING = -1, -2  # tokens that cover no part of the image, or only fill up a window

_NOT_FOLLOWED = "the places of its tokens could not be followed from the pixels"
_BROKEN = "its tokens do not divide their part of the image evenly"
_NOWHERE = "its tokens represent no part of the image, as far as they could be followed"
# In units of one token: the most that rounding may add to the length of the image, and the largest
# distance of a token's line, or of the image's end, from the edge of a cell.
_ROUNDED, _UNEVEN = 0.5, 0.25


@dataclass(frozen=True, slots=True, eq=False)
class TokenPlaces:
    """Holds the cell of an image grid that each query and key of an attention call covers.

    hookcli counts the cells row by row from 0. ``shape`` has the leading axes of the probabilities,
    of which ``window_axes`` count windows; the others count heads. If the cells are not known,
    ``unknown`` says why. If ``is_turned``, the model's probabilities are (…, keys, queries).
    """

    shape: tuple[int, ...]  # windows apart from heads
    window_axes: tuple[int, ...]
    queries: Tensor  # (windows, queries)
    keys: Tensor  # (windows, keys)
    query_grid: tuple[int, ...] = ()  # (rows, columns), or (frames, rows, columns)
    key_grid: tuple[int, ...] = ()  # smaller if the model pools the keys
    unknown: str = ""  # why no token has a cell; padding is known even then
    is_turned: bool = False

    @property
    def windows(self) -> int:
        return len(self.queries)

    @property
    def heads(self) -> int:
        return math.prod(self.shape) // self.windows

    def unlike(self, other: TokenPlaces | None, reason: str) -> TokenPlaces:
        """Return a copy without cells if ``other`` has other places, and this object otherwise.

        The copy's ``unknown`` is ``reason``. If ``other`` is None, or if this object's ``unknown``
        is set already, the result is this object, too.
        """
        if other is None or self.unknown or self._facts() == other._facts():
            return self
        queries, keys = (
            _mark_padding((mine == PADDING) & (theirs == PADDING))
            if mine.shape == theirs.shape
            else torch.full_like(mine, NO_PLACE)
            for mine, theirs in ((self.queries, other.queries), (self.keys, other.keys))
        )
        return replace(self, queries=queries, keys=keys, query_grid=(), key_grid=(), unknown=reason)

    def _facts(self) -> tuple[object, ...]:
        places = self.queries.tolist(), self.keys.tolist()
        return self.shape, self.window_axes, places, self.query_grid, self.key_grid, self.is_turned

    def arrange(self, probabilities: Tensor) -> Tensor:
        """Reshape probabilities (…, queries, keys) to (windows, heads, queries, keys)."""
        *_, queries, keys = probabilities.shape
        split = probabilities.reshape(*self.shape, queries, keys)
        heads = [axis for axis in range(len(self.shape)) if axis not in self.window_axes]
        ordered = split.permute(*self.window_axes, *heads, -2, -1)
        return ordered.reshape(self.windows, self.heads, queries, keys)


def find_places(
    queries: Tensor, keys: Tensor, sizes: Sequence[int], collapsed: Collection[int] = ()
) -> TokenPlaces:
    """Find the image cell that each query and key of an attention call covers.

    ``queries`` (…, L) and ``keys`` (…, M) have the index of the pixel from which each token comes;
    the other axes count windows or heads. ``sizes`` has the lengths of the image's axes, and
    ``collapsed`` the indices of the axes that the model reduced to a single line.
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
    queries, keys = (_mark_padding(part == OUTSIDE) for part in at)
    unknown = TokenPlaces(tuple(shape), tuple(windows), queries, keys)
    if any(bool((part <= LOST).any()) for part in at):  # LOST or WEIGHTS
        return replace(unknown, unknown=_NOT_FOLLOWED)
    (query_cells, query_grid), (key_cells, key_grid) = (
        _cells(part, other, sizes, collapsed) for part, other in (at, reversed(at))
    )
    if query_cells is None or key_cells is None:
        return replace(unknown, unknown=_BROKEN)
    why = "" if query_grid or key_grid else _NOWHERE
    found = replace(unknown, queries=query_cells, keys=key_cells, unknown=why)
    return replace(found, query_grid=query_grid, key_grid=key_grid)


def _mark_padding(is_padding: Tensor) -> Tensor:
    return torch.where(is_padding, PADDING, NO_PLACE)


def _cells(
    pixels: Tensor, others: Tensor, sizes: Sequence[int], collapsed: Collection[int]
) -> tuple[Tensor | None, tuple[int, ...]]:
    # The cells are None if the tokens form no regular grid over the whole image. Some models
    # compute attention for a few queries at a time: if all ``pixels`` (windows, tokens) are on one
    # line of the image that ``others`` have too, the grid of ``others`` applies.
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
        of_lines, count = _cells_of_lines_or_rest(lines, torch.unique(rest_of_others % size), size)
        if of_lines is None or (len(lines) == count == 1 < size and axis not in collapsed):
            return None, ()
        index += of_lines[rank] * stride
        stride *= count
        grid.insert(0, count)
        rest, rest_of_others = rest // size, rest_of_others // size
    cells[placed] = index
    return cells, tuple(grid)


def _cells_of_lines_or_rest(lines: Tensor, others: Tensor, size: int) -> tuple[Tensor | None, int]:
    if len(lines) == 1 < len(others) and bool((others == lines).any()):
        of_others, count = _cells_of_lines_or_rest(others, others, size)
        return (None if of_others is None else of_others[others == lines]), count
    of_lines, count = _cells_of_lines(lines, size)
    if of_lines is None:  # if the model flips the image, a token's position is its last pixel
        of_lines, count = _cells_of_lines((size - 1 - lines).flip(0), size)
        of_lines = None if of_lines is None else count - 1 - of_lines.flip(0)
    return of_lines, count


def _cells_of_lines(lines: Tensor, size: int) -> tuple[Tensor | None, int]:
    # A token's position is its first pixel: tokens that divide the image are on the lines 0, step,
    # 2 * step and so on, apart from rounding and padding. If a crop leaves out lines, cells are
    # counted from the image's edge. In a mirror image, the position is the last pixel, so a model
    # that uses both images has two lines in each cell. The cells are None if the lines are uneven,
    # or if a crop begins inside a cell.
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
    """Return the length of runs of equal slices along an axis: 2 for A A B B; 1 if it varies."""
    rows = places.movedim(axis, 0).flatten(1)
    starts = [0, *((rows[1:] != rows[:-1]).any(1).nonzero().flatten() + 1).tolist(), len(rows)]
    lengths = {end - start for start, end in itertools.pairwise(starts)}
    return lengths.pop() if len(lengths) == 1 else 1
