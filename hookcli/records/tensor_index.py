"""Declare and check ``tensors/index.json``, which lists the safetensors files of saved tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from hookcli.outside.documents import LEFT_OUT, MOST_VALUES, Axes, Document, Whole, keywords
from hookcli.records.text import shape_text

FOLDER = "tensors"  # of the index and the shards, in the run folder


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor of one shard (a safetensors file), as the index describes the tensor.

    Attributes:
        shard: the file that holds the tensor, relative to the run folder.
        tensor: the name of the tensor in the shard.
        shape: the shape of the tensor, (images, …).
        dtype: the dtype as safetensors names it: ``F32``, ``BF16``.
        images: the key (unique name) of the image in each row of the tensor.
        channels: the saved channels, counted from 0; left out if all channels were saved.
    """

    shard: str
    tensor: str
    shape: Axes
    dtype: str
    images: tuple[str, ...]
    channels: tuple[Whole, ...] = field(default=(), metadata=LEFT_OUT)

    def __post_init__(self) -> None:
        folder, _, name = self.shard.partition("/")
        if folder != FOLDER or "/" in name or not name.endswith(".safetensors"):
            raise ValueError(f"the shard {self.shard!r:.100} is not in the folder of the run")
        if not self.shape or self.shape[0] != len(self.images):
            raise ValueError(f"{len(self.images)} images in the shape {shape_text(self.shape)}")
        if math.prod(self.shape) > MOST_VALUES:
            raise ValueError(f"no tensor has the shape {shape_text(self.shape)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorIndex(Document):
    """The content of ``tensors/index.json``, which lists the shards that hold each call's tensors.

    Attributes:
        calls: the saved tensors by call id, in the order of the shards.
    """

    calls: dict[str, Annotated[tuple[SavedTensor, ...], keywords(minItems=1)]]
