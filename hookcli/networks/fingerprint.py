"""Hash a model's weights, to show whether two runs used the same weights."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hookcli.errors import ModelError
from hookcli.networks.modules import WRAPPED
from hookcli.outside.foreign import ForeignCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def hash_weights(module: nn.Module) -> str:
    # A quantized or sparse tensor is hashed as the dense one that it represents. The hash is empty
    # if an entry has no bytes, for example a parameter without a shape.
    digest = hashlib.sha256()
    try:
        with ForeignCode("state_dict"):
            for data in _list_bytes(module.state_dict()):
                digest.update(data)
    except ModelError:
        return ""
    return digest.hexdigest()


def _list_bytes(value: object) -> Iterator[bytes | memoryview]:
    if isinstance(value, dict):
        yield f"dict {len(value)}\n".encode()
        for name, each in value.items():
            yield f"{name!r}\n".replace(f"{WRAPPED}.", "").encode()
            yield from _list_bytes(each)
    elif isinstance(value, (list, tuple)):  # packed weights of quantized modules
        yield f"list {len(value)}\n".encode()
        for each in value:
            yield from _list_bytes(each)
    elif isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}\n".encode()
        yield _to_bytes(value)
    elif value is None or isinstance(value, (bool, int, float, str, bytes, torch.dtype)):
        yield f"{value!r}\n".encode()
    else:
        raise TypeError(f"{type(value).__name__} has no bytes that are the same in every process")


def _to_bytes(tensor: Tensor) -> memoryview:
    plain = tensor.detach()
    plain = plain.dequantize() if plain.is_quantized else plain
    plain = plain if plain.layout == torch.strided else plain.to_dense()
    # a copy, since the memory of an array can no longer be resized: the model may resize a buffer
    plain = plain.to("cpu", copy=True).resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data
