"""Read rows of saved tensors from the shards (safetensors files) of a run, as numpy arrays."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open

from hookcli.errors import RequestError
from hookcli.outside.files import open_regular
from hookcli.reading.run_files import cannot_read
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedReader

    from numpy.typing import NDArray

    from hookcli.reading.run_files import RunFiles
    from hookcli.records.tensor_index import SavedTensor

Array: TypeAlias = "NDArray[Any]"  # has the dtype of the saved tensor, or float32 for bfloat16

_BFLOAT16 = "BF16"
_DTYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    _BFLOAT16: "f4",
    "C64": "c8",
    "BOOL": "?",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U64": "u8",
    "U32": "u4",
    "U16": "u2",
    "U8": "u1",
}


def array_dtype(tensor: SavedTensor) -> np.dtype[np.generic]:
    """Return the dtype in which numpy holds a saved tensor: float32 for bfloat16."""
    if tensor.dtype not in _DTYPES:
        raise RequestError(
            f"{tensor.tensor!r} was saved as {tensor.dtype}, which numpy cannot hold",
            "save with `save.dtype='float32'`",
        )
    return np.dtype(_DTYPES[tensor.dtype])


def read_rows(
    run: RunFiles, tensor: SavedTensor, start: int, stop: int, ranges: Sequence[range] = ()
) -> Array:
    """Return some rows of a saved tensor as an array (stop - start, …); other rows are not read.

    The function also checks that the dtype and the shape in the shard are those of the index. Set
    ``start`` equal to ``stop`` for the check alone.

    ``ranges`` has the part to read of each axis after the first; empty for all of it.
    """
    dtype_of_array = array_dtype(tensor)
    parts = tuple(slice(part.start, part.stop) for part in ranges)
    try:
        with open_regular(run.file(tensor.shard)) as stream:
            # Read through the descriptor, so that hookcli reads the very file that it checked.
            with safe_open(f"/dev/fd/{stream.fileno()}", framework="np") as shard:
                saved = shard.get_slice(tensor.tensor)
                dtype, shape = saved.get_dtype(), tuple(saved.get_shape())
                if (dtype, shape) != (tensor.dtype, tensor.shape):
                    raise ValueError(f"{tensor.tensor} in it is {dtype} {shape_text(shape)}")
                if dtype != _BFLOAT16:
                    rows: Array = saved[(slice(start, stop), *parts)]
                    return rows.astype(dtype_of_array, copy=False)
            return _read_bfloat16(stream, tensor, start, stop)[(slice(None), *parts)]
    except (OSError, SafetensorError, ValueError) as error:
        raise cannot_read(run.place / tensor.shard, error) from error


def _read_bfloat16(
    stream: BufferedReader, tensor: SavedTensor, start: int, stop: int
) -> NDArray[np.float32]:
    """Return rows as float32, exactly: a bfloat16 is the upper half of a float32."""
    width = math.prod(tensor.shape[1:])
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    first = json.loads(stream.read(length))[tensor.tensor]["data_offsets"][0]
    stream.seek(8 + length + first + 2 * width * start)
    halves = np.frombuffer(stream.read(2 * width * (stop - start)), "<u2")
    floats = (halves.astype(np.uint32) << 16).view(np.float32)
    return floats.reshape(stop - start, *tensor.shape[1:])
