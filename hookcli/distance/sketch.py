"""Sketches of tensors, 268 bytes each, from which hookcli estimates how far two tensors differ.

A sketch is a random projection on 67 axes, drawn once for all runs. The norm of the difference of
two sketches estimates the norm of the difference of the tensors, so two runs can be compared
without their tensors.

hookcli numbers the elements of a tensor in the order of its axes (NCHW for a convolution), not in
memory order, and cuts them into rows of 67. It multiplies each element by a sign, 1 or -1, and adds
the rows. So element i is added to number i mod 67 of the sketch, with the sign

    sign(i) = own(i mod 136,613) * row(i div 67)        136,613 = 67 * 2,039

where ``own`` gives a sign to each element of 2,039 rows and then repeats, and ``row`` gives a sign
to each row and never repeats. Both are fixed sequences of signs: bit 63 of the outputs of
splitmix64 (https://prng.di.unimi.it/splitmix64.c), started with two fixed seeds.

67 is a prime. Values at a regular distance from each other, such as a usual width or number of
channels or tokens, are therefore not all added to the same number. For the same reason, 2,039 is a
prime. Because of ``row``, no two long stretches of a tensor have the same signs, and a sketch
measures a shift of all values as accurately as noise. ``own`` alone would measure a shift badly,
because every 136,613 values would add the same sums again.

Any change here that changes a sketch must increase ``records.golden.VERSION``, because sketches of
different versions cannot be compared.
"""

from __future__ import annotations

import base64
import binascii
import functools
from typing import TYPE_CHECKING

import numpy as np

from hookcli.records.golden import BUCKETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 2039  # rows of 67 values, after which the signs in ``own`` repeat
PERIOD = BUCKETS * ROWS

_OWN_SEED = 0x686F6F6B636C6931  # "hookcli1"
_ROW_SEED = 0x686F6F6B636C6932  # "hookcli2"
_LARGEST = float(np.finfo(np.float32).max)


@functools.cache
def make_own_signs() -> NDArray[np.int8]:
    return _draw_signs(_OWN_SEED, PERIOD).reshape(ROWS, BUCKETS)


def make_row_signs(count: int) -> NDArray[np.int8]:
    return _draw_signs(_ROW_SEED, count)


def sketch_values(values: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the sketch (67,) of an array. NaN and Inf count as 0."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)  # a complex value counts as two values
    own = make_own_signs().reshape(-1)
    rows = make_row_signs(-(-flat.size // BUCKETS)).astype(np.float64)
    total = np.zeros(BUCKETS)
    for block, start in enumerate(range(0, flat.size, PERIOD)):
        part = flat[start : start + PERIOD].astype(np.float64)
        part[~np.isfinite(part)] = 0
        signed = np.zeros(-(-part.size // BUCKETS) * BUCKETS)
        signed[: part.size] = part * own[: part.size]
        first = block * ROWS
        table = signed.reshape(-1, BUCKETS)
        total += rows[first : first + len(table)] @ table
    return np.clip(total, -_LARGEST, _LARGEST).astype(np.float32)


def to_bytes(sketch: NDArray[np.float32]) -> bytes:
    return sketch.astype("<f4").tobytes()


def from_bytes(data: bytes) -> NDArray[np.float32]:
    if len(data) != 4 * BUCKETS:
        raise ValueError(f"a sketch has {4 * BUCKETS} bytes, not {len(data)}")
    return np.frombuffer(data, "<f4").astype(np.float32)


def to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def from_text(text: str) -> NDArray[np.float32]:
    try:
        return from_bytes(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(f"a sketch in base64: {error}") from error


def _draw_signs(seed: int, count: int) -> NDArray[np.int8]:
    """Return ``count`` signs from the generator splitmix64: -1 where bit 63 is set, else 1."""
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2**64
        numbers = np.arange(1, count + 1, dtype=np.uint64)
        state = np.uint64(seed) + numbers * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return np.where(state >> np.uint64(63), -1, 1).astype(np.int8)
