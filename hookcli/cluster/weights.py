"""The file of trained weights, which the driver reads once and sends to all workers.

A worker stores the file if its node lacks the file.
"""

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
    """A file of weights.

    Attributes:
        url: the address from which torchvision downloads the file; empty for a user's own file.
        data: the content of the file.
    """

    url: str
    data: bytes

    def store(self, request: ModelRequest) -> ModelRequest:
        """Write the file unless this node has it, and return the request for this node.

        The file goes into torch's cache, which all workers of a node share. The returned request
        names the user's own file by its path on this node.
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
    """Return the file of weights that workers need for ``request``; None if they need no file.

    The request must name its weights exactly (see ``pin_weights``). Random weights need no file.
    The result is also None for a source with a cache of its own, such as timm: there, every node
    fills its cache itself.
    """
    file = Path(request.weights)
    if request.weights != "random" and file.is_file():
        return SentWeights("", read_regular(file))
    url = source.find_url(request.weights)
    return SentWeights(url, read_regular(cache_file(url))) if url else None
