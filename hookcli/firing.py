"""What a run over several images says of the images that fire a channel most: a table, and a choice for the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookcli.images import ImageFile
from hookcli.results import MOST_CHANNELS, MOST_FIRING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.parts import Found
    from hookcli.planning import PreparedRun
    from hookcli.results import Finding
    from hookcli.top_images import TopImages


@dataclass(frozen=True, slots=True)
class TopRow:
    """A row of ``top_images.csv``: an image that is among those that fire a channel most."""

    call_id: str
    channel: int
    rank: int
    image: str
    file: str
    value: float


def list_top_rows(prepared: PreparedRun, top: TopImages) -> Iterator[TopRow]:
    """The rows of ``top_images.csv``, call by call and channel by channel."""
    names = [
        (source.key, source.name if isinstance(source, ImageFile) else source.file)
        for source in prepared.sources
    ]
    return (TopRow(call, channel, rank, *names[at], v) for call, channel, rank, at, v in top.rows())


def choose_best(prepared: PreparedRun, found: Found) -> dict[str, list[dict[str, Any]]]:
    """What the page shows of the top images: a few channels of each layer."""
    top, keys = found.top, [source.key for source in prepared.sources]
    most = MOST_CHANNELS if prepared.shows_all else 1
    return {
        call_id: [
            {
                "channel": channel,
                "images": [keys[at] for at in top.places[call_id][channel] if at >= 0],
                "values": [float(v) for v in top.values[call_id][channel] if v > -math.inf],
            }
            for channel in channels
        ]
        for call_id in found.tally.calls
        if call_id in top.values and (channels := top.strongest(call_id, most))
    }


def name_shown(
    found: Found, findings: Sequence[Finding], best: dict[str, list[dict[str, Any]]]
) -> set[str]:
    """Keys of the images that the page of a run over many images shows."""
    from hookcli.sinks.report import choose_images

    document = {
        "images": [{"key": image.key} for image in found.images],
        "findings": [{"images": finding.images} for finding in findings],
    }
    firing = dict.fromkeys(k for rows in best.values() for row in rows for k in row["images"])
    return {image["key"] for image in choose_images(document)} | set(list(firing)[:MOST_FIRING])
