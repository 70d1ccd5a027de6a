"""Run the first image of a run a second time, and find the calls that return other values."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.activations.collector import Collector
from hookcli.distance.tolerance import RTOL
from hookcli.errors import ForwardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.runner import Batch
    from hookcli.records.layer_records import LayerRecord


def find_unsteady(
    runner: EagerRunner, batch: Batch, known: Collector, records: Sequence[LayerRecord]
) -> list[str]:
    """Run a batch again, and return the ids of the calls whose ``records`` are other ones now.

    ``known`` observed the first pass. The model and the random number generators go on where that
    pass left them, and are afterwards as it left them. On a CPU, the figures must be the same to
    the last digit; elsewhere, where kernels may add in any order, within ``RTOL``.
    """
    style = replace(known.style, mode="none")
    again = Collector(known.keys, known.pixels, style, sample=known.sample, sketch=known.sketch)
    with suppress(ForwardError), runner.unchanged():
        runner.run(batch, again)
        found = {(each.image, each.call.id): each for each in again.result().records}
        moved = (r for r in records if _differs(r, found.get((r.image, r.call.id)), runner.device))
        return list(dict.fromkeys(each.call.id for each in moved))
    return []


def _differs(a: LayerRecord, b: LayerRecord | None, device: torch.device | str) -> bool:
    if b is None or a.stats.shape != b.stats.shape:
        return True
    if str(device) == "cpu":
        return _facts(a) != _facts(b)
    names = ("mean", "std", "min", "max")
    ones, twos = ([getattr(each.stats, name) for name in names] for each in (a, b))
    if None in ones or None in twos:
        return ones != twos
    least = RTOL.get(a.stats.dtype, 0.0) * max(map(abs, ones))
    return any(abs(one - two) > least for one, two in zip(ones, twos, strict=True))


def _facts(record: LayerRecord) -> str:
    channels = record.channels and ([*record.channels.low], [*record.channels.high])
    return repr((record.stats, channels, record.histogram, record.sketch))  # NaN differs from NaN
