"""What a run over several images says of the images that fire a channel most: a table, and a choice for the page."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING

from hookcli.images.read import ImageFile
from hookcli.records.runs import MOST_CHANNELS, MOST_FIRING
from hookcli.render.report.document import TopChannel, choose_images
from hookcli.store import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.plan.prepare import PreparedRun
    from hookcli.records.runs import Finding
    from hookcli.summary.chunks import RunTotals
    from hookcli.summary.top_images import TopImages


def render_top_rows(prepared: PreparedRun, top: TopImages) -> bytes:
    """``top_images.csv``: call by call and channel by channel, the images that fire a channel most.

    It can have more rows than all other tables together, so names are escaped once, not in every row,
    and the rows of one call are put together before those of the next are made.
    """
    names = [
        tables.render_fields(
            source.key, source.name if isinstance(source, ImageFile) else source.file
        )
        for source in prepared.sources
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


def choose_best(prepared: PreparedRun, found: RunTotals) -> dict[str, list[TopChannel]]:
    """What the page shows of the top images: a few channels of each layer."""
    top, keys = found.top, [source.key for source in prepared.sources]
    most = MOST_CHANNELS if prepared.shows_all else 1
    return {
        call_id: [
            TopChannel(
                channel,
                tuple(keys[at] for at in top.places[call_id][channel] if at >= 0),
                tuple(float(v) for v in top.values[call_id][channel] if v > -math.inf),
            )
            for channel in channels
        ]
        for call_id in found.tally.calls
        if call_id in top.values and (channels := top.strongest(call_id, most))
    }


def name_shown(
    found: RunTotals, findings: Sequence[Finding], best: dict[str, list[TopChannel]]
) -> set[str]:
    """Keys of the images that the page of a run over many images shows."""
    firing = dict.fromkeys(key for rows in best.values() for row in rows for key in row.images)
    shown = choose_images(found.images, findings)
    return {image.key for image in shown} | set(list(firing)[:MOST_FIRING])
