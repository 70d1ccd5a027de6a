"""Compute sketches of tensors with torch, in a hook, on each tensor's own device.

A sketch sums up one row (one image's values) in 67 numbers: as in ``hookcli.distance.sketch``, each
value gets a fixed sign, plus or minus, and is added to one of 67 sums. hookcli adds 136,613 values
of each row at a time (1 MB in float64), which fit into the CPU's cache. It never waits for a GPU to
copy a value to the host.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from hookcli.distance.sketch import PERIOD, ROWS, make_own_signs, make_row_signs
from hookcli.records.golden import BUCKETS


def take_sketches(rows: Tensor) -> Tensor:
    """Return a sketch (random projection) of each row of a dense tensor, as float32 (rows, 67)."""
    # NaN and Inf count as 0, and too large a sum becomes the largest float32 number.
    flat = _as_real(rows).flatten(1)  # in the order of the axes, whatever the order in memory
    own = _own_signs(flat.device)
    row_signs = _row_signs(max(1, -(-flat.shape[1] // PERIOD)), flat.device)
    total = flat.new_zeros(len(flat), BUCKETS, dtype=torch.float64)
    for start in range(0, flat.shape[1], PERIOD):
        part = flat[:, start : start + PERIOD]
        table = total.new_zeros(len(flat), -(-part.shape[1] // BUCKETS), BUCKETS)
        table.flatten(1)[:, : part.shape[1]] = part
        signs = row_signs[start // BUCKETS :][: table.shape[1]]
        table.nan_to_num_(0, 0, 0).mul_(own[: table.shape[1]]).mul_(signs)
        total += table.sum(1)
    largest = torch.finfo(torch.float32).max
    return total.clamp(-largest, largest).float()


def _as_real(rows: Tensor) -> Tensor:
    values = rows.dequantize() if rows.is_quantized else rows
    values = values.to(torch.complex64) if values.dtype == torch.complex32 else values
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    if values.device.type == "mps":
        values = values.cpu()  # MPS has no float64
    return values.unsqueeze(1) if values.dim() == 1 else values


@functools.cache
def _own_signs(device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):  # a backward pass must be able to use the signs again
        return torch.from_numpy(make_own_signs()).to(device, torch.float64)


@functools.lru_cache(maxsize=64)
def _row_signs(blocks: int, device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        signs = torch.from_numpy(make_row_signs(blocks * ROWS))
        return signs.unsqueeze(1).to(device, torch.float64)
