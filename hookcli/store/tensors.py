"""Write safetensors files: a shard for each chunk and an index of the shards, or weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save

from hookcli.errors import OutputError
from hookcli.outside.documents import decode, to_fields
from hookcli.outside.escape import reversible
from hookcli.outside.files import write_atomic
from hookcli.records.tensor_index import SavedTensor, TensorIndex
from hookcli.store.locations.names import INDEX, shard_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

_ROWS = "rows"  # the only metadata key: safetensors does not preserve the order of several
_RESERVED = "__metadata__"
_LENGTH = 8  # bytes of the header's length
_LONGEST_HEADER = 100_000_000  # bytes; safetensors rejects a longer header


def write_shard(
    write: Callable[[str, bytes], str],
    number: int,
    kept: Mapping[str, Sequence[tuple[str, Tensor]]],
) -> str:
    # ``kept`` has, by call id, the key and the tensor (1, …) of each image. Tensors of the same
    # shape and dtype become the rows of one tensor: the first of a call is named ``CALL_ID``, the
    # next ones ``CALL_ID@1``, ``CALL_ID@2``. The metadata entry ``rows`` (JSON) has the call id and
    # the images of every tensor, in the order of ``kept``.
    tensors: dict[str, Tensor] = {}
    rows: dict[str, dict[str, object]] = {}
    taken = {_RESERVED, *map(reversible, kept)}
    for call_id, pairs in kept.items():
        shown = reversible(call_id)
        groups: dict[object, list[tuple[str, Tensor]]] = {}
        for key, tensor in pairs:
            groups.setdefault((tensor.shape, tensor.dtype), []).append((key, tensor))
        for index, group in enumerate(groups.values()):
            name = _tensor_name(shown, index, taken)
            taken.add(name)
            tensors[name] = torch.cat([tensor for _, tensor in group]).cpu().contiguous()
            rows[name] = {"call_id": shown, "images": [reversible(key) for key, _ in group]}
    return write(shard_file(number), save(tensors, {_ROWS: json.dumps(rows)}))


def write_weights(file: Path, state: Mapping[str, Tensor]) -> Path:
    """Write a state dict as a safetensors file, and write a tensor with two names twice."""
    laid_out = torch.contiguous_format
    own = {name: tensor.cpu().clone(memory_format=laid_out) for name, tensor in state.items()}
    try:
        return write_atomic(file, save(own))
    except UnicodeEncodeError as error:
        what = f"cannot write {str(file)!r}: {error.object!r:.80} cannot be a name in it"
        raise OutputError(what, "rename the module, or leave out `save_weights`") from error


def write_index(
    write: Callable[[str, bytes], str],
    read_part: Callable[[str, int, int], bytes],
    shards: Sequence[str],
    channels: Mapping[str, Sequence[int]] | None = None,
) -> str:
    # ``channels`` are the saved channels by call id; a call that saved all channels is left out.
    calls: dict[str, list[SavedTensor]] = {}
    chosen = {reversible(call_id): tuple(kept) for call_id, kept in (channels or {}).items()}
    for shard in shards:
        for call_id, tensor in _read_header(read_part, shard):
            calls.setdefault(call_id, []).append(replace(tensor, channels=chosen.get(call_id, ())))
    index = TensorIndex(calls={call_id: tuple(saved) for call_id, saved in calls.items()})
    return write(INDEX, f"{json.dumps(index, indent=1, default=to_fields)}\n".encode())


@dataclass(frozen=True, slots=True)
class _Rows:
    call_id: str
    images: tuple[str, ...]


def _tensor_name(call_id: str, index: int, taken: set[str]) -> str:
    if index == 0 and call_id != _RESERVED:
        return call_id
    numbered = (f"{call_id}@{number}" for number in count(max(1, index)))
    return next(name for name in numbered if name not in taken)


def _read_header(
    read_part: Callable[[str, int, int], bytes], shard: str
) -> Iterator[tuple[str, SavedTensor]]:
    # A shard begins with the length of its header (8 bytes, little-endian), and then has the header
    # as JSON: https://huggingface.co/docs/safetensors/index#format
    try:
        length = int.from_bytes(read_part(shard, 0, _LENGTH), "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"its header has {length:,} bytes")
        header = decode(read_part(shard, _LENGTH, _LENGTH + length), dict[str, dict[str, Any]])
        for name, rows in decode(str(header[_RESERVED][_ROWS]).encode(), dict[str, _Rows]).items():
            shape, dtype = tuple(header[name]["shape"]), header[name]["dtype"]
            yield rows.call_id, SavedTensor(shard, name, shape, dtype=dtype, images=rows.images)
    except (OSError, LookupError, ValueError) as error:
        what = f"cannot read the shard {shard!r}: {error}"
        raise OutputError(what, "run it again with `overwrite=True`") from error
