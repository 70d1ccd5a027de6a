"""Sum up the records of each call, and check each record against the thresholds of findings."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from hookcli.records.rules import FLOAT16_LARGEST
from hookcli.summary.call_tally import RuleHit, tally_of
from hookcli.summary.chunks import merge_by_call
from hookcli.summary.scales import find_scale_hits, order_by_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hookcli.records.calls import Call
    from hookcli.records.layer_records import LayerRecord
    from hookcli.records.rows import LayerRow
    from hookcli.summary.call_tally import CallTally
    from hookcli.summary.scales import ScaleHit


def add_records(
    calls: dict[str, CallTally], records: Iterable[LayerRecord], limits: Mapping[str, float]
) -> None:
    ordered = sorted(records, key=lambda r: (r.image, r.call.order))
    for record in ordered:
        merge_by_call(calls, {record.call.id: tally_of(record)})
        for rule, number in _look(record, limits):
            calls[record.call.id].hit(rule, RuleHit(number, [record.image]))
    if not limits:
        return
    for image, of_image in itertools.groupby(ordered, lambda record: record.image):
        for hit in _compare(of_image, limits):
            if hit.rule in limits:
                found = RuleHit(hit.number, [image], hit.against.call.id)
                calls[hit.record.call.id].hit(hit.rule, found)


def _look(record: LayerRecord, limits: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    stats = record.stats
    for rule, count in (("nan", stats.nan_count), ("inf", stats.inf_count)):
        if count > limits.get(rule, math.inf):
            yield rule, count
    if stats.dtype == "float16" and stats.min is not None and stats.max is not None:
        share = max(abs(stats.min), abs(stats.max)) / FLOAT16_LARGEST
        if share >= limits.get("float16", math.inf):
            yield "float16", share


def _compare(records: Iterable[LayerRecord], limits: Mapping[str, float]) -> Iterator[ScaleHit]:
    sides: dict[tuple[str, str], list[LayerRecord]] = {}
    for record in records:
        sides.setdefault((record.call.side, record.call.target), []).append(record)
    exploding, vanishing = (limits.get(r, math.inf) for r in ("exploding", "vanishing"))
    for (side, _), of_side in sides.items():
        if side in ("output", "grad_output"):
            step = 1 if side == "output" else -1
            yield from find_scale_hits(order_by_end(of_side)[::step], exploding, vanishing)


def list_rows(
    calls: Mapping[str, CallTally],
    sparsities: Mapping[str, float],
    norm_of: Callable[[Call], float | None],
) -> tuple[LayerRow, ...]:
    # ``sparsities`` has the shares of zeros in the weights of pruned layers, by module path;
    # ``norm_of`` returns the norm of the parameter of a ``param`` call.
    rows = []
    for tally in calls.values():
        norm = norm_of(tally.call) if tally.call.side == "param" else None
        rows.append(tally.row(sparsities.get(tally.call.layer.module_path), norm))
    targets = [*dict.fromkeys(row.target for row in rows)]  # one block of rows for each
    return tuple(sorted(rows, key=lambda r: (targets.index(r.target), r.order, r.side)))
