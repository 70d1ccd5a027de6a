"""The figures of all calls over many images, added up as they come, in constant memory.

A tally of some images can be merged with that of the images after them; the same images in the same
chunks give the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookcli.summary.call_tally import CallTally, RuleHit, tally_of
from hookcli.summary.rules import FLOAT16_LARGEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.rows import LayerRow

_PASSING = ("Identity", "Dropout", "Dropout2d", "Dropout3d", "StochasticDepth")


@dataclass(slots=True)
class Tally:
    """The figures of all calls, in the order in which the calls were first observed.

    Attributes:
        limits: the thresholds of the rules that look at one image.
        calls: the figures of each call, by its id.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    calls: dict[str, CallTally] = field(default_factory=dict)

    def add(self, records: Iterable[LayerRecord]) -> None:
        """Add the records of one or more images."""
        ordered = sorted(records, key=lambda r: (r.image, r.call.order))
        for record in ordered:
            self._merge(tally_of(record))
            self._look(record)
        backwards = [record for record in reversed(ordered) if record.call.side == "grad_output"]
        self._compare([record for record in ordered if record.call.side == "output"])
        self._compare(backwards)

    def merge(self, calls: Mapping[str, CallTally]) -> None:
        """Add the tally of later images."""
        for tally in calls.values():
            self._merge(tally)

    def rows(self) -> tuple[LayerRow, ...]:
        """Return one row per call and output, in the order in which the calls started."""
        rows = (tally.row() for tally in self.calls.values())
        return tuple(sorted(rows, key=lambda row: (row.order, row.side)))

    def _merge(self, other: CallTally) -> None:
        known = self.calls.get(other.call.id)
        if known is None:
            self.calls[other.call.id] = other
        else:
            known.merge(other)

    def _sign(self, rule: str, record: LayerRecord, number: float, against: str = "") -> None:
        if rule in self.limits:
            self.calls[record.call.id].sign(rule, RuleHit(number, [record.image], against))

    def _look(self, record: LayerRecord) -> None:
        """Compare the figures of one image with the thresholds."""
        stats, limits = record.stats, self.limits
        for rule, count in (("nan", stats.nan_count), ("inf", stats.inf_count)):
            if count > limits.get(rule, math.inf):
                self._sign(rule, record, count)
        if stats.dtype == "float16" and stats.min is not None and stats.max is not None:
            share = max(abs(stats.min), abs(stats.max)) / FLOAT16_LARGEST
            if share >= limits.get("float16", math.inf):
                self._sign("float16", record, share)

    def _compare(self, records: Iterable[LayerRecord]) -> None:
        """Compare each record with the one before it of the same image, type and form."""
        before: dict[tuple[str, str, str], LayerRecord] = {}
        for record in records:
            call, layout = record.call, record.layout
            if not record.stats.std or call.layer.module_type in _PASSING:
                continue
            form = f"{layout.name} {layout.is_spatial} {call.call_index} {call.output_key}"
            kind = (record.image, call.layer.module_type, form)
            previous = before.get(kind)
            before[kind] = record
            if previous is not None and previous.stats.std:
                ratio = record.stats.std / previous.stats.std
                for rule, number in (("exploding", ratio), ("vanishing", 1 / ratio)):
                    if number >= self.limits.get(rule, math.inf):
                        self._sign(rule, record, number, previous.call.id)


def aggregate_layers(records: Iterable[LayerRecord]) -> tuple[LayerRow, ...]:
    """Return one row per call and output, over all images of ``records``."""
    tally = Tally()
    tally.add(records)
    return tally.rows()
