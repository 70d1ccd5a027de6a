"""Which frames of an animation or a folder stand for the whole of it."""

from __future__ import annotations


def spread_evenly(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` indices at even distances, from the first to the last of ``count``.

    Where more are wanted than there are, some come more than once.
    """
    return [round(place * (count - 1) / max(1, wanted - 1)) for place in range(wanted)]
