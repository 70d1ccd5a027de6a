"""Kept activations on disk: safetensors shards that are never changed, and one index over them.

A shard holds what a chunk of images gave. The same tensors give the same bytes, so a run that is
resumed writes the same shards again. The index is made from the shards' headers alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from hookcli.documents import SCHEMA_VERSION, decode
from hookcli.errors import OutputError
from hookcli.escape import reversible
from hookcli.files import open_regular, write_atomic
from hookcli.store.names import INDEX, shard_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import BufferedReader
    from pathlib import Path

    from torch import Tensor

_ROWS = "rows"  # the only key of a shard's metadata: safetensors writes several in no fixed order
_RESERVED = "__metadata__"


def write_shard(
    write: Callable[[str, bytes], str],
    number: int,
    kept: Mapping[str, Sequence[tuple[str, Tensor]]],
) -> str:
    """Write ``tensors/shard-000012.safetensors``; returns that name.

    All images of one shape and dtype are rows of one tensor, named by the call id; other shapes and
    dtypes are ``call id@1``, ``@2``, in order of appearance. The metadata hold, as JSON under
    ``rows``, the call id and the images of every tensor, in the order of ``kept``.

    Args:
        write: writes a file of the run folder.
        number: of the shard, from 0.
        kept: call id to pairs of image key and tensor (1, …), in the order of the images.

    Raises:
        OutputError: it cannot be written; nothing of it is left behind.
    """
    tensors: dict[str, Tensor] = {}
    rows: dict[str, dict[str, object]] = {}
    taken = {_RESERVED, *map(reversible, kept)}
    for call_id, pairs in kept.items():
        shown = reversible(call_id)
        for place, group in enumerate(_alike(pairs)):
            name = _tensor_name(shown, place, taken)
            taken.add(name)
            tensors[name] = torch.cat([tensor for _, tensor in group]).cpu().contiguous()
            rows[name] = {"call_id": shown, "images": [reversible(key) for key, _ in group]}
    return write(shard_file(number), save(tensors, {_ROWS: json.dumps(rows)}))


def write_weights(file: Path, state: Mapping[str, Tensor]) -> Path:
    """Write a state dict, each tensor with memory of its own; what was tied is written twice.

    Raises:
        OutputError: it cannot be written; nothing of it is left behind.
    """
    laid_out = torch.contiguous_format
    own = {name: tensor.cpu().clone(memory_format=laid_out) for name, tensor in state.items()}
    return write_atomic(file, save(own))


def write_index(
    write: Callable[[str, bytes], str],
    folder: Path,
    shards: Sequence[str],
    channels: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """Write ``tensors/index.json``; returns that name.

    Under ``calls`` it holds, for each call id, ``shard``, ``tensor``, ``shape``, ``dtype`` (as
    safetensors names it: ``F32``, ``BF16``) and ``images`` of each of its tensors, in the order of
    ``shards``; and ``channels``, where some were chosen. No tensor is loaded.

    Args:
        write: writes a file of the run folder.
        folder: where the shards are.
        shards: their names as ``write_shard`` returned them.
        channels: by call id, which channels were kept of it; without those of which all were.

    Raises:
        OutputError: a shard cannot be read, or the index cannot be written.
    """
    calls: dict[str, list[dict[str, object]]] = {}
    chosen = {reversible(call_id): list(kept) for call_id, kept in (channels or {}).items()}
    for shard in shards:
        for call_id, entry in _read_header(folder, shard):
            if call_id in chosen:
                entry["channels"] = chosen[call_id]
            calls.setdefault(call_id, []).append(entry)
    document = {"schema_version": SCHEMA_VERSION, "calls": calls}
    return write(INDEX, f"{json.dumps(document, indent=1)}\n".encode())


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a shard says of one of its tensors."""

    call_id: str
    images: tuple[str, ...]


def _open_shard(stream: BufferedReader) -> safe_open:
    """A shard by the descriptor of its file, so that what is read is what was looked at."""
    return safe_open(f"/dev/fd/{stream.fileno()}", framework="np")


def _alike(pairs: Sequence[tuple[str, Tensor]]) -> list[list[tuple[str, Tensor]]]:
    """The pairs by shape and dtype, in order of appearance."""
    groups: dict[object, list[tuple[str, Tensor]]] = {}
    for key, tensor in pairs:
        groups.setdefault((tensor.shape, tensor.dtype), []).append((key, tensor))
    return list(groups.values())


def _tensor_name(call_id: str, place: int, taken: set[str]) -> str:
    """The call id for the first group, then ``@1``, …; past a module that has such a name itself."""
    if place == 0 and call_id != _RESERVED:
        return call_id
    name = f"{call_id}@{max(1, place)}"
    while name in taken:
        place += 1
        name = f"{call_id}@{max(1, place)}"
    return name


def _read_header(folder: Path, shard: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The call id and index entry of each tensor of a shard."""
    try:
        with open_regular(folder / shard) as stream, _open_shard(stream) as file:
            said = (file.metadata() or {}).get(_ROWS, "")
            for name, rows in decode(said.encode(), dict[str, _Rows]).items():
                part = file.get_slice(name)
                yield (
                    rows.call_id,
                    {
                        "shard": shard,
                        "tensor": name,
                        "shape": part.get_shape(),
                        "dtype": part.get_dtype(),
                        "images": list(rows.images),
                    },
                )
    except (OSError, SafetensorError, ValueError) as error:
        raise OutputError(
            f"cannot read the shard {str(folder / shard)!r}: {error}",
            "run it again with --overwrite",
        ) from error
