"""What a run over several images says of the images that fire a channel most: a table, and a choice for the page."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, TypeAlias

from hookcli.images.read import ImageFile
from hookcli.records.runs import MOST_FIRING
from hookcli.render.report.document import TopChannel, choose_images
from hookcli.store import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.images.read import ImageSource
    from hookcli.records.images import ImageResult
    from hookcli.records.runs import Finding
    from hookcli.summary.chunks import RunTotals
    from hookcli.summary.top_images import TopImages


TopChannels: TypeAlias = dict[str, list[TopChannel]]
"""By call id, some channels with the images that fire them most."""


def render_top_rows(sources: Sequence[ImageSource | ImageFile], top: TopImages) -> bytes:
    """``top_images.csv``: call by call and channel by channel, the images that fire a channel most.

    It can have more rows than all other tables together, so names are escaped once, not in every row,
    and the rows of one call are put together before those of the next are made.
    """
    names = [
        tables.render_fields(
            source.key, source.name if isinstance(source, ImageFile) else source.file
        )
        for source in sources
    ]
    pieces = [b"call_id,channel,rank,image,file,value\n"]
    for call_id, rows in itertools.groupby(top.rows(), key=operator.itemgetter(0)):
        call = tables.render_fields(call_id)
        lines = (
            f"{call},{channel},{rank},{names[at]},{value!r}\n"
            for _, channel, rank, at, value in rows
        )
        pieces.append("".join(lines).encode())
    return b"".join(pieces)


def choose_best(keys: Sequence[str], totals: RunTotals, most: int) -> TopChannels:
    """Return what the page shows of the top images: up to ``most`` channels of each layer.

    Args:
        keys: the keys of all images, in their order.
        totals: what they gave.
        most: how many channels of each layer.
    """
    top = totals.top
    return {
        call_id: [
            TopChannel(
                channel,
                tuple(keys[at] for at in top.places[call_id][channel] if at >= 0),
                tuple(float(v) for v in top.values[call_id][channel] if v > -math.inf),
            )
            for channel in channels
        ]
        for call_id in totals.tally.calls
        if call_id in top.values and (channels := top.strongest(call_id, most))
    }


def name_shown(
    images: Sequence[ImageResult], findings: Sequence[Finding], best: TopChannels
) -> set[str]:
    """Keys of the images that the page of a run over many images shows."""
    firing = dict.fromkeys(key for rows in best.values() for row in rows for key in row.images)
    shown = choose_images(images, findings)
    return {image.key for image in shown} | set(list(firing)[:MOST_FIRING])
