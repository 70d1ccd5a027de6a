"""The number of processes that prepare images."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageSource

_WORTH_WORKERS = 24
_MOST_WORKERS = 4
# Bytes: a photo of this size has two megapixels or more, and takes as long to decode as a forward.
_LARGE = 250_000


def count_workers(asked: int | None, sources: Sequence[ImageSource]) -> int:
    """Return the number of processes that prepare images; 0 if there are too few images to pay."""
    if all(source.kept is not None for source in sources):
        return 0
    if asked is not None:
        return asked
    cores = os.cpu_count() or 1
    if len(sources) < _WORTH_WORKERS:
        return 0
    if _are_large(sources):
        return min(_MOST_WORKERS, cores)
    return min(_MOST_WORKERS, cores - 1) if cores > 2 else 0  # one costs more than it saves


def _are_large(sources: Sequence[ImageSource]) -> bool:
    """Return whether decoding the first files takes long enough for processes of their own."""
    sizes = [0]
    for source in sources[:_WORTH_WORKERS]:
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.stat(source.file).st_size)  # noqa: PTH116
    return sum(sizes) > _LARGE * len(sizes)
