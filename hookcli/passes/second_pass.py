"""Run the first image of a run a second time, and find the calls that return other values."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from hookcli.activations.collector import Collector
from hookcli.distance.tolerance import RTOL
from hookcli.errors import ForwardError
from hookcli.hooks.nested import tensors_in
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hookcli.passes.eager import EagerRunner
    from hookcli.passes.runner import Batch
    from hookcli.records.layer_records import LayerRecord


def find_unsteady(
    runner: EagerRunner,
    batch: Batch,
    known: Collector,
    records: Sequence[LayerRecord],
    output: object,
) -> list[str]:
    """Run a batch again, and return the ids of the calls whose ``records`` are then different.

    If only the ``output`` of the model differs, return its label. The model and the random numbers
    continue from the first pass, and are restored. On a CPU, every digit must be the same.
    Elsewhere, kernels may add in any order, so ``RTOL`` is tolerated.
    """
    style = replace(known.style, mode="none")
    again = Collector(known.keys, known.pixels, style, sample=known.sample, sketch=known.sketch)
    with suppress(ForwardError), runner.unchanged():
        outcome = runner.run(batch, again)
        found = {(each.image, each.call.id): each for each in again.result().records}
        kept = ((each, found.get((each.image, each.call.id))) for each in records)
        is_exact = str(runner.device) == "cpu"
        # A call that is not made again, such as of a cached value, shows in the output.
        ids = [one.call.id for one, two in kept if two and not _is_same(one, two, is_exact)]
        ones, twos = (tensors_in(each) for each in (output, outcome.output))
        is_equal_output = len(ones) == len(twos) and all(map(is_equal, ones, twos))
        is_other = is_exact and not is_equal_output
        return ids or [ROOT_LABEL] * is_other
    return []


def is_equal(a: Tensor, b: Tensor) -> bool:
    if a.layout != torch.strided or a.is_nested:
        return True  # and the layers tell
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _is_same(a: LayerRecord, b: LayerRecord, is_exact: bool) -> bool:  # noqa: FBT001
    if is_exact:  # as text, since NaN is not equal to NaN
        return repr((a.stats, a.histogram, a.sketch)) == repr((b.stats, b.histogram, b.sketch))
    ones, twos = ([s.mean or 0, s.std or 0, s.min or 0, s.max or 0] for s in (a.stats, b.stats))
    least = RTOL.get(a.stats.dtype, 0.0) * max(map(abs, ones))
    return all(abs(one - two) <= least for one, two in zip(ones, twos, strict=True))
