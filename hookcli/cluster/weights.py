"""The file of trained weights; the driver reads it once and sends it to nodes that lack it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.models.torchvision import cache_file
from hookcli.outside.files import read_regular, write_atomic

if TYPE_CHECKING:
    from hookcli.config import ModelRequest
    from hookcli.models.source import Source


@dataclass(frozen=True, slots=True)
class SentWeights:
    """A file of weights; ``url`` is torchvision's address for it, empty for a user's own file."""

    url: str
    data: bytes

    def store(self, request: ModelRequest) -> ModelRequest:
        """Write the file if this node lacks it, and return the request that names it here.

        It goes into torch's cache, so the workers of a node share it.
        """
        if not self.url and Path(request.weights).is_file():
            return request
        if self.url:
            file = cache_file(self.url)
        else:
            digest = hashlib.sha256(self.data).hexdigest()[:12]
            file = cache_file(f"hookcli-{digest}-{Path(request.weights).name}")
        if not file.is_file():
            write_atomic(file, self.data)
        return request if self.url else replace(request, weights=str(file))


def read_weights(source: Source, request: ModelRequest) -> SentWeights | None:
    """Return the weights file that a request with pinned weights needs; None if it needs none.

    For sources with a different cache, such as timm, every node fills its own cache.
    """
    file = Path(request.weights)
    if request.weights != "random" and file.is_file():
        return SentWeights("", read_regular(file))
    url = source.find_url(request.weights)
    return SentWeights(url, read_regular(cache_file(url))) if url else None
