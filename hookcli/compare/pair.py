"""Measure how far matching calls of two runs are apart, from what both runs kept. No torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hookcli.distance import sketch as sketches
from hookcli.distance.judge import CallPair
from hookcli.distance.metrics import measure_arrays, measure_figures, measure_sketches
from hookcli.errors import RequestError
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hookcli.compare.compared_run import ComparedRun, RunCall
    from hookcli.distance.metrics import Distance


def measure_pair(
    key: str, a: RunCall | None, b: RunCall | None, run_a: ComparedRun, run_b: ComparedRun
) -> CallPair:
    """Measure how far a call of A and the matching call of B are apart, for the image ``key`` of A.

    Whole tensors are preferred to sketches, sketches to tensors of which only a part was saved, and
    these to figures, which every run has.

    Raises:
        RequestError: a shard is damaged, or tensors have different shapes than their records.
    """
    if a is None or b is None:
        return CallPair(key, a.tensor if a else None, b.tensor if b else None)
    if a.tensor.shape != b.tensor.shape or a.tensor.reason or b.tensor.reason:
        return CallPair(key, a.tensor, b.tensor)
    return CallPair(key, a.tensor, b.tensor, _measure(a, b, run_a, run_b))


def _measure(a: RunCall, b: RunCall, run_a: ComparedRun, run_b: ComparedRun) -> Distance:
    if a.read and b.read and not (run_a.saved or run_b.saved):
        return _measure_saved(a, b, run_a, run_b)
    one, two = _sketch_of(a, run_a), _sketch_of(b, run_b)
    if one is not None and two is not None:
        return measure_sketches((one, two), (a.figures, b.figures))
    if a.read and b.read and run_a.pooled == run_b.pooled:
        return _measure_saved(a, b, run_a, run_b)
    return measure_figures(a.figures, b.figures)


def _measure_saved(a: RunCall, b: RunCall, run_a: ComparedRun, run_b: ComparedRun) -> Distance:
    """Measure the distance of tensors that both runs saved."""
    assert a.read is not None and b.read is not None  # noqa: S101, PT018
    one, two = a.read(), b.read()
    if one.shape != two.shape:
        raise RequestError(
            f"the tensors of {a.tensor.call_id!r} are {shape_text(one.shape)} in {run_a.name!r}, "
            f"and {shape_text(two.shape)} in {run_b.name!r}",
            "run both again, with the same options of --save tensors",
        )
    source = " ".join(["tensors", *dict.fromkeys((*run_a.saved, *run_b.saved))])
    return replace(measure_arrays(one, two), source=source)


def _sketch_of(call: RunCall, run: ComparedRun) -> NDArray[np.float32] | None:
    """Return the sketch, (67,), taken from the saved tensor if need be; None without either."""
    if call.sketch is not None or call.read is None or run.saved:
        return call.sketch
    return sketches.sketch_values(call.read())
