"""What a run saved of each call: the index, and rows of its shards as arrays."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from hookcli.errors import RequestError, first_line
from hookcli.records import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

INDEX = "tensors/index.json"
AGAIN = "run hookcli inspect again"
SCHEMA_VERSION = 1  # the newest that is understood

_BFLOAT16 = "BF16"
_DTYPES = {
    "F64": "f8", "F32": "f4", "F16": "f2", _BFLOAT16: "f4", "C64": "c8", "BOOL": "?",
    "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor of one shard, as the index describes it.

    Attributes:
        shard: its file, relative to the run folder.
        tensor: its name in there.
        shape: (images, …).
        dtype: as safetensors names it: ``F32``, ``BF16``.
        images: the key of each row.
        channels: which were saved; empty when all were.
    """

    shard: str
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    images: tuple[str, ...]
    channels: tuple[int, ...] = ()

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """What numpy holds it as: bfloat16 as float32.

        Raises:
            RequestError: numpy has no such type.
        """
        if self.dtype not in _DTYPES:
            raise RequestError(
                f"{self.tensor!r} was saved as {self.dtype}, which numpy cannot hold",
                "save with --tensor-dtype float32",
            )
        return np.dtype(_DTYPES[self.dtype])


def read_index(file: Path) -> dict[str, tuple[SavedTensor, ...]]:
    """The saved tensors of each call id, in the order of the shards.

    Raises:
        RequestError: the index is not there, or damaged.
    """
    try:
        calls = read_json(file)["calls"]
        return {call_id: tuple(map(_read_entry, calls[call_id])) for call_id in calls}
    except (LookupError, TypeError, ValueError) as error:
        raise RequestError(f"{str(file)!r} is damaged: {error!r}", AGAIN) from error


def read_rows(folder: Path, tensor: SavedTensor, start: int, stop: int) -> NDArray[Any]:
    """Rows ``start`` to ``stop`` of a tensor, (stop - start, …), and nothing else of its shard.

    Raises:
        RequestError: the shard is not there, damaged, or not what the index says, or numpy has no
            such type.
    """
    file, array_dtype = folder / tensor.shard, tensor.array_dtype
    try:
        file.open("rb").close()  # safetensors says of one that may not be read that it is not there
        with safe_open(file, framework="np") as shard:
            part = shard.get_slice(tensor.tensor)
            dtype, shape = part.get_dtype(), tuple(part.get_shape())
            if (dtype, shape) != (tensor.dtype, tensor.shape):
                raise ValueError(f"{tensor.tensor} in it is {dtype} {shape_text(shape)}")
            if dtype != _BFLOAT16:
                rows: NDArray[Any] = part[start:stop]
                return rows.astype(array_dtype, copy=False)
        return _read_bfloat16(file, tensor, start, stop)
    except (OSError, SafetensorError, ValueError) as error:
        raise cannot_read(file, error) from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        RequestError: it is not there, or damaged.
    """
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise cannot_read(file, error) from error
    if not isinstance(document, dict):
        raise RequestError(f"{str(file)!r} is damaged: it holds no object", AGAIN)
    return document


def check_schema(document: Mapping[str, Any], name: str) -> None:
    """Refuse what a later version of hookcli wrote.

    Raises:
        RequestError: a later one did.
    """
    version = document.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise RequestError(
            f"{name!r} has schema version {version}, and this hookcli reads up to {SCHEMA_VERSION}",
            "a later hookcli wrote it: pip install --upgrade hookcli",
        )


def cannot_read(file: Path, error: Exception) -> RequestError:
    """The error for a file of a run that is not there, or not what a run writes."""
    reason = getattr(error, "strerror", None) or first_line(error)
    return RequestError(f"cannot read {str(file)!r}: {reason}", AGAIN)


def name_close(wanted: str, known: Iterable[str]) -> str:
    """A hint: names like ``wanted``, or the first of those there are."""
    names = list(known)
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"there are: {', '.join(names[:5])}{more}"


def _read_entry(entry: Mapping[str, Any]) -> SavedTensor:
    shape, images = tuple(map(int, entry["shape"])), tuple(map(str, entry["images"]))
    if not shape or shape[0] != len(images):
        raise ValueError(f"{len(images)} images in the shape {shape_text(shape)}")
    shard, tensor, dtype = (str(entry[name]) for name in ("shard", "tensor", "dtype"))
    return SavedTensor(
        shard, tensor, shape, dtype, images, tuple(map(int, entry.get("channels", ())))
    )


def _read_bfloat16(file: Path, tensor: SavedTensor, start: int, stop: int) -> NDArray[np.float32]:
    """Rows as float32, exactly: a bfloat16 is the upper half of one. numpy has no such type."""
    width = math.prod(tensor.shape[1:])
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        first = json.loads(stream.read(length))[tensor.tensor]["data_offsets"][0]
    offset = 8 + length + first + 2 * width * start
    halves = np.fromfile(file, "<u2", width * (stop - start), offset=offset)
    floats = (halves.astype(np.uint32) << 16).view(np.float32)
    return floats.reshape(stop - start, *tensor.shape[1:])
