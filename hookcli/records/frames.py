"""The choice of the frames that represent an animation or a folder of pictures."""

from __future__ import annotations

CLIP_FRAMES = 16  # how many frames of a clip a video model is given


def spread_evenly(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` indices at even distances, from the first to the last of ``count`` items.

    Where more are wanted than there are items, some indices are repeated.
    """
    return [round(place * (count - 1) / max(1, wanted - 1)) for place in range(wanted)]
