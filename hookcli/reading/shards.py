"""Read rows of saved tensors from safetensors files as numpy arrays; bfloat16 becomes float32."""

from __future__ import annotations

import io
import math
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from hookcli.errors import RequestError
from hookcli.outside.documents import Axes, DamagedError, Whole, convert, decode
from hookcli.reading.run_files import cannot_read
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hookcli.reading.run_files import RunFiles
    from hookcli.records.tensor_index import SavedTensor

Array: TypeAlias = "NDArray[Any]"  # has the dtype of the saved tensor, or float32 for bfloat16

_BFLOAT16 = "BF16"
_NUMBERS = ("F64", "F32", "F16", "C64", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
# numpy's dtypes by safetensors' names: ``I64`` counts bits, and numpy's ``i8`` counts bytes.
_DTYPES = {name: f"{name[0].lower()}{int(name[1:]) // 8}" for name in _NUMBERS}
_DTYPES |= {_BFLOAT16: "u2", "BOOL": "?"}


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: Axes
    data_offsets: tuple[Whole, Whole]


def array_dtype(tensor: SavedTensor) -> np.dtype[np.generic]:
    if tensor.dtype not in _DTYPES:
        what = f"{tensor.tensor!r} was saved as {tensor.dtype}, which numpy cannot hold"
        raise RequestError(what, "save with `tensor_dtype='float32'`")
    return np.dtype("f4" if tensor.dtype == _BFLOAT16 else _DTYPES[tensor.dtype])


def read_rows(
    run: RunFiles, tensor: SavedTensor, start: int, stop: int, ranges: Sequence[range] = ()
) -> Array:
    """Return the rows of a saved tensor from ``start`` to ``stop`` (exclusive), one per image.

    ``ranges`` chooses the indices to read along the second axis, the third axis, and so on; axes
    without a range are read whole. Raise a RequestError if numpy lacks the dtype, or if the file
    (shard) is damaged or has another dtype or shape. To only check it, set ``stop`` to ``start``.
    """
    array_dtype(tensor)
    try:
        parts = (slice(part.start, part.stop) for part in ranges)
        with run.open(tensor.shard) as stream, _map(stream) as data:
            rows = _copy_part(data, tensor, (slice(start, stop), *parts))
    except (OSError, ValueError) as error:
        raise cannot_read(run.location / tensor.shard, error) from error
    # bfloat16 is the upper half of a float32
    return (rows.astype("u4") << 16).view("f4") if tensor.dtype == _BFLOAT16 else rows


def _map(stream: BinaryIO) -> memoryview | mmap.mmap:
    # Windows neither replaces nor deletes a file while it is mapped.
    if isinstance(stream, io.BytesIO):
        return memoryview(stream.getvalue())
    return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _copy_part(data: memoryview | mmap.mmap, tensor: SavedTensor, part: tuple[slice, ...]) -> Array:
    """Copy ``part`` (a slice per axis) of a tensor in a shard; a damaged shard raises an error."""
    begin = 8 + int.from_bytes(data[:8], "little")
    if not 8 < begin <= len(data):
        raise DamagedError("its header is longer than the file")
    header = decode(bytes(data[8:begin]), dict[str, Any])
    entries = {n: convert(each, _Entry) for n, each in header.items() if n != "__metadata__"}
    if tensor.tensor not in entries:
        raise DamagedError(f"{tensor.tensor} is not in it")
    entry, end = entries[tensor.tensor], max(each.data_offsets[1] for each in entries.values())
    if (entry.dtype, entry.shape) != (tensor.dtype, tensor.shape):
        raise DamagedError(f"{tensor.tensor} in it is {entry.dtype} {shape_text(entry.shape)}")
    dtype = np.dtype(_DTYPES[entry.dtype]).newbyteorder("<")
    first, last = entry.data_offsets
    if last - first != math.prod(entry.shape) * dtype.itemsize or begin + end != len(data):
        raise DamagedError("its length is not what its header says")
    whole: Array = np.ndarray(entry.shape, dtype, data, begin + first)
    return whole[part].copy()
