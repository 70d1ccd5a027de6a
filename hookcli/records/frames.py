"""The choice of the frames that represent an animation or a folder of pictures."""

from __future__ import annotations

CLIP_FRAMES = 16  # the number of frames in a clip for a video model


def spread_evenly(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` evenly spaced indices, first and last included; repeated if too few."""
    return [round(place * (count - 1) / max(1, wanted - 1)) for place in range(wanted)]
