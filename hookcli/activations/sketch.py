"""Sketches (``hookcli.distance.sketch``), computed by torch inside a hook.

On the CPU, hookcli normally reads a tensor once, in memory order, in pieces that fit into the
cache, and allocates nothing of the tensor's size. On a GPU, hookcli sums in float64 and copies no
value to the host, so the host does not wait for the device. MPS has no float64, so hookcli copies
tensors on MPS to the CPU first.
"""

from __future__ import annotations

import functools
import math
import threading

import torch
from torch import Tensor

from hookcli.distance.sketch import PERIOD, ROWS, make_own_signs, make_row_signs
from hookcli.records.golden import BUCKETS

_PIECE = 1 << 17  # values multiplied at a time: half a MB in float32, which fits into the cache
_SCRATCH = 2 * PERIOD  # values of scratch memory: 1 MB in float32
_MOST_TURNED = 1 << 22  # maximum number of values in a row whose signs are cached in memory order
_TURNED = 8  # number of shapes whose signs are cached in memory order
# The dtypes that are multiplied with signs without conversion.
_MULTIPLIED = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_KEPT = 24  # blocks of PERIOD values whose signs are cached, 3 MB: enough for 64 maps of 224 x 224


def take_sketches(rows: Tensor) -> Tensor:
    """Return one sketch per row, (rows, 67) in float32; all zeros if the rows have no values.

    The sketches are on the device of ``rows``, or on the CPU for a tensor on MPS. This function
    runs between the layers of a model, when the CPU's caches are cold, so the number of torch calls
    matters as much as the number of values.

    Args:
        rows: (rows, …), with one image per row. The tensor must be dense and detached. All dtypes
            are allowed, including complex and quantized dtypes.
    """
    values = _as_real(rows)
    if values.numel() == 0:
        return torch.zeros(len(values), BUCKETS, device=values.device)
    if not values.is_cpu:
        return _sketch_exactly(values)
    sketches = _sketch_fast(values)
    return sketches if math.isfinite(sketches.sum()) else _sketch_exactly(values)


def _as_real(rows: Tensor) -> Tensor:
    """Return real values with two axes or more; complex values become pairs of real values."""
    # Integers and booleans become float64, and float8 becomes float32.
    values = rows.dequantize() if rows.is_quantized else rows
    values = values.to(torch.complex64) if values.dtype == torch.complex32 else values
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    if values.device.type == "mps":
        values = values.cpu()  # MPS has no float64
    values = values.unsqueeze(1) if values.dim() == 1 else values
    if values.dtype in _MULTIPLIED:
        return values
    return values.float() if values.is_floating_point() else values.double()


def _sketch_exactly(values: Tensor) -> Tensor:
    """Return the sketches (rows, 67), summed in float64 and clipped; NaN and Inf count as 0."""
    flat = values.flatten(1)
    own = _own_signs(torch.float64, values.device)
    lines = _row_signs(flat.shape[1], torch.float64, values.device)
    total = torch.zeros(len(flat), BUCKETS, dtype=torch.float64, device=values.device)
    for start in range(0, flat.shape[1], PERIOD):
        part = flat[:, start : start + PERIOD].double().nan_to_num(0, 0, 0)
        signed = part * own[: part.shape[1]]
        missing = -signed.shape[1] % BUCKETS
        table = torch.nn.functional.pad(signed, (0, missing)).view(len(flat), -1, BUCKETS)
        first = start // BUCKETS
        total += (table * lines[first : first + table.shape[1]].unsqueeze(1)).sum(1)
    largest = torch.finfo(torch.float32).max
    return total.clamp(-largest, largest).float()


def _sketch_fast(values: Tensor) -> Tensor:
    """Return the sketches (rows, 67), with NaN or Inf where a row has them or float32 overflows."""
    kind = torch.float64 if values.dtype == torch.float64 else torch.float32
    turned = _find_turn(values)
    if turned is not None:
        return _sketch_turned(values, *turned, kind).float()
    sketches = torch.zeros(len(values), BUCKETS, dtype=kind)
    for row, sketch in zip(values.flatten(1), sketches, strict=True):
        _add_in_order(row, sketch)
    return sketches.float()


def _add_in_order(row: Tensor, sketch: Tensor) -> None:
    """Multiply the values of ``row``, (n,), by their signs, and add them to ``sketch``, (67,)."""
    for block, start in enumerate(range(0, len(row), PERIOD)):
        part = row[start : start + PERIOD] if len(row) > PERIOD else row
        signs = (_block_signs if block < _KEPT else _block_signs.__wrapped__)(block, len(part))
        table, signed = _scratch.lay(len(part), sketch.dtype)
        table.copy_(signs)
        signed.mul_(part)
        sketch += table.sum(0)


@functools.lru_cache(maxsize=64)
def _block_signs(block: int, count: int) -> Tensor:
    """Return the first ``count`` of a block's 136,613 signs, (n, 67) in int8, zero-filled."""
    lines = -(-count // BUCKETS)
    with torch.inference_mode(mode=False):
        signs = _make_signs(block, block + 1)[: lines * BUCKETS].clone()
        signs[count:] = 0
        return signs.view(lines, BUCKETS)


def _find_turn(values: Tensor) -> tuple[int, int] | None:
    """Return (a, b) if each row is an array (a, b) that memory holds as (b, a), else None."""
    # Channels-last maps give (C, H * W). Rows with more than ``_MOST_TURNED`` values give None,
    # because hookcli does not cache their signs.
    if values.is_contiguous() or values[0].numel() > _MOST_TURNED:
        return None
    for axis in range(2, values.dim()):
        turned = values.permute(0, *range(axis, values.dim()), *range(1, axis))
        if turned.is_contiguous():
            return math.prod(values.shape[1:axis]), math.prod(values.shape[axis:])
    return None


def _sketch_turned(values: Tensor, outer: int, inner: int, kind: torch.dtype) -> Tensor:
    """Return the sketches (rows, 67) of rows (outer, inner) that memory holds as (inner, outer)."""
    # The value at (a, b) belongs to bucket (a * inner + b) mod 67. The function first adds up all
    # values with equal b mod 67, then these sums with equal a mod 67, and finally the 67 x 67 sums
    # of each bucket. ``kind`` is the dtype of the sums.
    memory = values.as_strided((len(values), inner, outer), (values.stride(0), outer, 1))
    tables = _fold_signed(memory, _turned_signs(outer, inner), kind)
    squares = tables.new_zeros(len(values), BUCKETS, BUCKETS)
    for part in torch.split(tables, BUCKETS, 2):
        squares[:, : part.shape[1], : part.shape[2]] += part
    places = _places(inner % BUCKETS)
    return squares.gather(1, places.expand(len(values), -1, -1)).sum(2)


@functools.cache
def _places(step: int) -> Tensor:
    """Return a table (67, 67) of each b with ``(a * step + b) % 67 == bucket``, by bucket and a."""
    with torch.inference_mode(mode=False):
        a, bucket = torch.arange(BUCKETS), torch.arange(BUCKETS).unsqueeze(1)
        return (bucket - a * step) % BUCKETS


def _fold_signed(memory: Tensor, signs: Tensor, kind: torch.dtype) -> Tensor:
    """Multiply values (rows, inner, outer) by their signs, and fold them as ``_fold`` does."""
    count, inner, outer = memory.shape
    tables = torch.zeros(count, min(inner, BUCKETS), outer, dtype=kind)
    step = max(1, _PIECE // (outer * BUCKETS)) * BUCKETS
    for start in range(0, inner, step):
        wide = signs[start : start + step].to(kind)
        together = max(1, _PIECE // wide.numel())
        for first in range(0, count, together):
            part = memory[first : first + together, start : start + step]
            signed = _scratch.take(part.numel(), kind).view(part.shape)
            folded = _fold(torch.mul(part, wide, out=signed))
            tables[first : first + together, : folded.shape[1]] += folded
    return tables


def _fold(values: Tensor) -> Tensor:
    """Add up the values (rows, length, width) whose indices along ``length`` are equal mod 67."""
    count, length, width = values.shape
    whole = length // BUCKETS
    if whole == 0:
        return values
    total = values[:, : whole * BUCKETS].view(count, whole, BUCKETS, width).sum(1)
    rest = values[:, whole * BUCKETS :]
    total[:, : rest.shape[1]] += rest
    return total


def _make_signs(first: int, end: int) -> Tensor:
    """Return the signs of the blocks ``first`` to ``end - 1``, (blocks * 136,613,) in int8."""
    kind, cpu = torch.int8, torch.device("cpu")
    lines = _row_signs(end * PERIOD, kind, cpu).view(-1, ROWS, 1)[first:end]
    with torch.inference_mode(mode=False):
        return (lines * _own_signs(kind, cpu).view(ROWS, BUCKETS)).flatten()


@functools.cache
def _own_signs(kind: torch.dtype, device: torch.device) -> Tensor:
    """Return one period of the signs ``own`` of ``distance.sketch``, (136,613,)."""
    with torch.inference_mode(mode=False):
        return torch.from_numpy(make_own_signs().reshape(-1)).to(device, kind)


def _row_signs(count: int, kind: torch.dtype, device: torch.device) -> Tensor:
    """Return at least the signs ``row`` of ``distance.sketch``, one per 67 of ``count`` values."""
    blocks = max(1, -(-count // PERIOD))
    return _rows_of_blocks(1 << (blocks - 1).bit_length(), kind, device)


@functools.lru_cache(maxsize=16)
def _rows_of_blocks(blocks: int, kind: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.from_numpy(make_row_signs(blocks * ROWS)).to(device, kind)


@functools.lru_cache(maxsize=_TURNED)
def _turned_signs(outer: int, inner: int) -> Tensor:
    """Return the signs of a row of (outer, inner) values, transposed to (inner, outer), in int8."""
    count = outer * inner
    signs = _make_signs(0, -(-count // PERIOD))[:count]
    with torch.inference_mode(mode=False):
        return signs.view(outer, inner).t().contiguous()


class _Scratch(threading.local):
    """Reusable scratch memory, because allocating new pages would cost more than the sums.

    Each thread has its own scratch memory, because a model may run its branches in threads.
    """

    def __init__(self) -> None:
        self._whole: dict[torch.dtype, Tensor] = {}
        self.lay = functools.lru_cache(maxsize=64)(self._lay)

    def take(self, count: int, kind: torch.dtype) -> Tensor:
        """Return uninitialized memory for ``count`` values, valid until the next call."""
        with torch.inference_mode(mode=False):  # a backward pass must be able to reuse the memory
            if count > _SCRATCH:
                return torch.empty(count, dtype=kind)
            if kind not in self._whole:
                self._whole[kind] = torch.empty(_SCRATCH, dtype=kind)
            return self._whole[kind][:count]

    def _lay(self, count: int, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return scratch memory in two views: rows of 67 values, and the first ``count`` values."""
        lines = -(-count // BUCKETS)
        with torch.inference_mode(mode=False):
            table = self.take(lines * BUCKETS, kind)
            return table.view(lines, BUCKETS), table[:count]


_scratch = _Scratch()
