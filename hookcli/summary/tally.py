"""The statistics of all calls over many images, summed image by image in constant memory."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli.records.rules import FLOAT16_LARGEST
from hookcli.summary.call_tally import CallTally, RuleHit, tally_of
from hookcli.summary.chunks import merge_by_call
from hookcli.summary.scales import find_scale_hits, order_by_end

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.rows import LayerRow


@dataclass(slots=True)
class Tally:
    """The statistics of all calls, in the order in which the calls were first observed."""

    # of each rule that is applied to each image
    limits: Mapping[str, float] = field(default_factory=dict)
    calls: dict[str, CallTally] = field(default_factory=dict)

    def add(self, records: Iterable[LayerRecord]) -> None:
        """Add the records of one or more images."""
        ordered = sorted(records, key=lambda r: (r.image, r.call.order))
        for record in ordered:
            merge_by_call(self.calls, {record.call.id: tally_of(record)})
            self._look(record)
        if not self.limits:
            return
        for _, of_image in itertools.groupby(ordered, lambda record: record.image):
            sides: dict[str, list[LayerRecord]] = {"output": [], "grad_output": []}
            for record in of_image:
                sides.setdefault(record.call.side, []).append(record)
            self._compare(order_by_end(sides["output"]))
            self._compare(reversed(order_by_end(sides["grad_output"])))

    def _sign(self, rule: str, record: LayerRecord, number: float, against: str = "") -> None:
        if rule in self.limits:
            self.calls[record.call.id].hit(rule, RuleHit(number, [record.image], against))

    def _look(self, record: LayerRecord) -> None:
        stats, limits = record.stats, self.limits
        for rule, count in (("nan", stats.nan_count), ("inf", stats.inf_count)):
            if count > limits.get(rule, math.inf):
                self._sign(rule, record, count)
        if stats.dtype == "float16" and stats.min is not None and stats.max is not None:
            share = max(abs(stats.min), abs(stats.max)) / FLOAT16_LARGEST
            if share >= limits.get("float16", math.inf):
                self._sign("float16", record, share)

    def _compare(self, records: Iterable[LayerRecord]) -> None:
        """Apply ``exploding`` and ``vanishing`` to an image's records, ordered like its tensors."""
        exploding, vanishing = (self.limits.get(r, math.inf) for r in ("exploding", "vanishing"))
        for hit in find_scale_hits(records, exploding, vanishing):
            self._sign(hit.rule, hit.record, hit.number, hit.against.call.id)


def list_rows(calls: Mapping[str, CallTally]) -> tuple[LayerRow, ...]:
    """Return the rows of ``layers.csv``, one per tensor, in the order of the calls' starts."""
    rows = (tally.row() for tally in calls.values())
    return tuple(sorted(rows, key=lambda row: (row.order, row.side)))
