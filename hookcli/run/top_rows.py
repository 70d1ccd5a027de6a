"""The images that fire each channel most: the table of them, and a choice for the page."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import TYPE_CHECKING

from hookcli.images.read import ImageFile
from hookcli.records.report import RankedImages, TopChannel
from hookcli.records.runs import MOST_FIRING, MOST_RANKED
from hookcli.render.report.document import choose_pictured
from hookcli.store import tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookcli.images.read import ImageSource
    from hookcli.records.images import ImageResult
    from hookcli.records.runs import Finding
    from hookcli.summary.chunks import RunTotals
    from hookcli.summary.top_images import TopImages


def render_top_rows(sources: Sequence[ImageSource | ImageFile], top: TopImages) -> bytes:
    """Return ``top_images.csv``: the images that fire each channel most, call by call.

    The table can have more rows than all others together, so names are escaped once and not in
    every row, and the rows of one call are joined before those of the next are made.
    """

    @functools.cache
    def name(at: int) -> str:
        source = sources[at]
        file = source.name if isinstance(source, ImageFile) else source.file
        return tables.render_fields(source.key, file)

    pieces = [b"call_id,channel,rank,image,file,value\n"]
    for call_id, rows in itertools.groupby(top.rows(), key=operator.itemgetter(0)):
        call = tables.render_fields(call_id)
        lines = (
            f"{call},{channel},{rank},{name(at)},{value!r}\n"
            for _, channel, rank, at, value in rows
        )
        pieces.append("".join(lines).encode())
    return b"".join(pieces)


def choose_best(
    keys: Sequence[str], totals: RunTotals, most: int, asked: Sequence[int] | None = None
) -> dict[str, tuple[TopChannel, ...]]:
    """Return the channels that the page shows with the images that fire them most, by call id.

    Args:
        keys: the keys of all images, in their order.
        totals: the totals of the run.
        most: the largest number of channels of each layer.
        asked: the channels that were asked for, of which up to four times as many are shown; None
            for those whose best image stands out most.
    """
    top = totals.top

    def choose(call_id: str) -> Sequence[int]:
        if asked is None:
            return top.strongest(call_id, most)
        known = [channel for channel in asked if channel < len(top.values[call_id])]
        return known[: 4 * most]

    return {
        call_id: tuple(
            TopChannel(
                channel,
                tuple(keys[at] for at in top.places[call_id][channel] if at >= 0),
                tuple(float(v) for v in top.values[call_id][channel] if v > -math.inf),
            )
            for channel in channels
        )
        for call_id in totals.tally.calls
        if call_id in top.values and (channels := choose(call_id))
    }


def rank_images(
    keys: Sequence[str], totals: RunTotals, most: int = MOST_RANKED
) -> dict[str, RankedImages]:
    """Return the images that fire every channel most, by call id.

    Each channel has the same number of them, as many as were kept or as fit. If not even one for
    each channel fits, nothing is returned.

    Args:
        keys: the keys of all images, in their order, also of those that were skipped.
        totals: the totals of the run.
        most: the largest number of images for all channels together.
    """
    top = totals.top
    calls = [call_id for call_id in totals.tally.calls if call_id in top.values]
    channels = sum(len(top.values[call_id]) for call_id in calls)
    each = min(top.count, most // channels) if channels else 0
    shown = {image.key: place for place, image in enumerate(totals.images)}
    place_of = {at: shown[key] for at, key in enumerate(keys) if key in shown}

    def rank(call_id: str) -> RankedImages:
        values = top.values[call_id][:, :each].ravel().tolist()
        places = top.places[call_id][:, :each].ravel().tolist()
        return RankedImages(
            each,
            tuple(place_of.get(at) for at in places),
            tuple(float(f"{value:.4g}") if math.isfinite(value) else None for value in values),
        )

    return {call_id: rank(call_id) for call_id in calls} if each else {}


def name_shown(
    images: Sequence[ImageResult],
    findings: Sequence[Finding],
    best: Mapping[str, Sequence[TopChannel]],
) -> set[str]:
    """Return the keys of the images that the page of a run over many images shows."""
    firing = dict.fromkeys(key for tops in best.values() for top in tops[:1] for key in top.images)
    pictured = choose_pictured(images, findings)
    return {image.key for image in pictured} | set(list(firing)[:MOST_FIRING])
