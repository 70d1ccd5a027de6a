"""Send a file of trained weights, or of a whole model, from the driver to nodes that lack it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookcli.networks.torchvision import cache_file
from hookcli.outside.files import read_regular, split_key, write_atomic

if TYPE_CHECKING:
    from hookcli.config import ModelRequest
    from hookcli.networks.source import Source


@dataclass(frozen=True, slots=True)
class SentWeights:
    url: str  # where torchvision downloads the file; empty for a user's own file
    data: bytes
    field: str = "weights"  # the field of the model's request that names a user's own file

    def store(self, request: ModelRequest) -> ModelRequest:
        name, key = split_key(getattr(request, self.field))
        own = Path(name)
        if not self.url and own.is_file():
            return request
        digest = hashlib.sha256(self.data).hexdigest()[:12]
        file = cache_file(self.url or f"hookcli-{digest}-{own.name}")
        if not file.is_file():
            write_atomic(file, self.data)
        changed: dict[str, Any] = {self.field: f"{file}:{key}" if key else str(file)}
        return request if self.url else replace(request, **changed)


def read_weights(source: Source, request: ModelRequest) -> SentWeights | None:
    """Read the weights file to send to the nodes; return None if the nodes do not need one."""
    file = Path(split_key(request.weights)[0])
    if request.weights != "random" and file.is_file():
        return SentWeights("", read_regular(file))
    url = source.find_url(request.weights)
    return SentWeights(url, read_regular(cache_file(url))) if url else None


def read_model(request: ModelRequest) -> SentWeights:
    return SentWeights("", read_regular(Path(request.name)), field="name")
