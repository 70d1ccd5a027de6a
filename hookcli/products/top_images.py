"""Write ``top_images.csv``, and choose the channels whose top images the page shows."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from hookcli.outside import tables
from hookcli.outside.escape import for_csv
from hookcli.products.product import Cost, Product
from hookcli.records.report import RankedImages, TopChannel
from hookcli.records.runs import MOST_CHANNELS, MOST_RANKED
from hookcli.store.locations import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookcli.images.read import ImageSource
    from hookcli.products.product import Outlook, RunEnd
    from hookcli.summary.chunks import Chunk
    from hookcli.summary.top_images import TopTally

_COLUMNS = ("call_id", "channel", "rank", "image", "file", "value")
_FIRING_BYTES = 60  # per top image of a channel in the page
_ROW_BYTES = 80  # per row of the table


class TopImages(Product):
    def claim(self) -> list[str]:
        return [names.TOP_IMAGES]

    def estimate(self, outlook: Outlook) -> Cost:
        if "output" not in self.scope.config.sides:
            return Cost()
        top = min(self.scope.config.top_images, self.scope.images)
        shown = len(outlook.layers) * MOST_CHANNELS
        return Cost(1, top * (shown * _FIRING_BYTES + sum(outlook.channels) * _ROW_BYTES))

    def close(self, end: RunEnd) -> list[str]:
        if not end.top.values:
            return []
        return [end.folder.write(names.TOP_IMAGES, render_top_rows(end.sources, end.top))]

    def describe(self, end: RunEnd) -> dict[str, object]:
        keys = [source.key for source in end.sources]
        ranked = rank_images(keys, end.top, end.totals)
        best = choose_best(keys, end.top, end.totals.calls, self.scope.config.grids.channels)
        return {"top_images": best, "ranked_images": ranked}


def render_top_rows(sources: Sequence[ImageSource], top: TopTally) -> bytes:
    # It can have more rows than all other tables together: ``render_csv`` takes twice as long.
    files = [(for_csv(source.key), for_csv(source.name)) for source in sources]
    rows = (
        (for_csv(call_id), channel, rank, *files[at], value)
        for call_id, channel, rank, at, value in top.rows()
    )
    return tables.render_lines(chain([_COLUMNS], rows)).encode()


def choose_best(
    keys: Sequence[str], top: TopTally, calls: Iterable[str], asked: Sequence[int] | None
) -> dict[str, tuple[TopChannel, ...]]:
    """Return a few channels of each call, with the images that have their largest values.

    These are the first 12 channels in ``asked`` that the call has or, if ``asked`` is None, the 3
    channels that stand out most. ``keys`` lists the run's image keys, as ``top`` numbers them.
    """

    def choose(call_id: str) -> Sequence[int]:
        if asked is None:
            return top.strongest(call_id, MOST_CHANNELS)
        known = [channel for channel in asked if channel < len(top.values[call_id])]
        return known[: 4 * MOST_CHANNELS]

    return {
        call_id: tuple(
            TopChannel(
                channel,
                tuple(keys[at] for at in top.indices[call_id][channel] if at >= 0),
                tuple(float(v) for v in top.values[call_id][channel] if v > -math.inf),
            )
            for channel in channels
        )
        for call_id in calls
        if call_id in top.values and (channels := choose(call_id))
    }


def rank_images(
    keys: Sequence[str], top: TopTally, totals: Chunk, most: int = MOST_RANKED
) -> dict[str, RankedImages]:
    # Each channel gets ``top.count`` images, or fewer, so that all channels together get at most
    # ``most``; no channel gets an image if there are more than ``most`` channels.
    calls = [call_id for call_id in totals.calls if call_id in top.values]
    channels = sum(len(top.values[call_id]) for call_id in calls)
    each = min(top.count, most // channels) if channels else 0
    shown = {image.key: index for index, image in enumerate(totals.images)}
    shown_index = {at: shown[key] for at, key in enumerate(keys) if key in shown}

    def rank(call_id: str) -> RankedImages:
        values = top.values[call_id][:, :each].ravel().tolist()
        indices = top.indices[call_id][:, :each].ravel().tolist()
        return RankedImages(
            each,
            tuple(shown_index.get(at) for at in indices),
            tuple(float(f"{value:.4g}") if math.isfinite(value) else None for value in values),
        )

    return {call_id: rank(call_id) for call_id in calls} if each else {}
