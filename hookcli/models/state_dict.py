"""The files of torchvision's weights: downloaded from its servers into torch's cache."""

from __future__ import annotations

import http.client
import re
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError

import torch

from hookcli.errors import WeightsError
from hookcli.outside.foreign import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_SECONDS = 10
UNREACHABLE = (OSError, http.client.HTTPException)
_HASH = re.compile(r"-([a-f0-9]*)\.")  # the start of the sha256, in torchvision's file names


def cache_file(url: str) -> Path:
    """Return the path at which torch caches the file of ``url``."""
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


def cache_weights(name: str, url: str, *, progress: bool) -> Path:
    """Return the file of the weights called ``name`` in torch's cache; download it if necessary.

    Raises:
        WeightsError: the downloaded file does not have the expected hash.
        OSError: the network or the cache folder is not accessible; ``UNREACHABLE`` has all types.
    """
    file = cache_file(url)
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    digest = _HASH.search(url)
    try:
        with _connection_timeout():
            torch.hub.download_url_to_file(
                url, str(file), digest[1] if digest else None, progress=progress
            )
    except UNREACHABLE as error:
        if isinstance(error, HTTPError):
            error.close()
        raise
    except RuntimeError as error:
        raise WeightsError(
            f"the download of {name} is not what torchvision published: {first_line(error)}",
            "try again, or pass a file you trust: --weights FILE",
        ) from error
    return file


@contextmanager
def _connection_timeout() -> Iterator[None]:
    """Set a timeout for connections, since torch.hub sets none and could hang."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
