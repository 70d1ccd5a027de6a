"""The own errors of one image's calls, and the error that rounding explains, by hand."""

from __future__ import annotations

import pytest
import torch

from hookcli.compare.blame import _Measured
from hookcli.compare.seen_calls import SeenCalls
from hookcli.distance.blame import OwnError
from hookcli.records.calls import Call, LayerInfo

FLOAT32, FLOAT16 = 2**-23, 2**-10


def measured(*calls, own=1e-3, partners=None):
    """A run of A's calls, of which B computes those in ``partners``, each with an error."""
    seen = SeenCalls()
    for order, (path, kind) in enumerate(calls):
        seen.keep(Call(LayerInfo(path, kind), 0, order), torch.ones(2) * (order + 1))
    paths = [path for path, _ in calls] if partners is None else partners
    found = _Measured(seen, {path: path for path in paths})
    kinds = dict(calls)
    found.errors = {path: OwnError(path, kinds[path], own, 0.0) for path in paths}
    return found


def list_errors(found, moved, dtypes=None, dtype="float32"):
    errors = {path: OwnError(path, kind, own, 0.0) for path, (kind, own) in moved.items()}
    return {each.call_id: each for each in found.list_errors(errors, dtypes or {}, dtype)}


def test_rounding_explains_what_moved_inputs_change():
    found = list_errors(measured(("a", "Own")), {"a": ("Own", 1e-6)})
    assert found["a"].rounding == 1e-6


def test_rounding_explains_at_least_half_a_digit():
    found = list_errors(measured(("a", "Own")), {"a": ("Own", 0.0)})
    assert found["a"].rounding == FLOAT32 / 2


def test_the_error_of_rounding_is_that_of_the_dtype_of_the_call():
    """All inputs move by a digit of float16; ``a`` is computed in float32."""
    found = list_errors(
        measured(("a", "Own"), ("b", "Own")),
        {"a": ("Own", 0.5), "b": ("Own", 0.5)},
        {"a": "float32", "b": "float16"},
        "float16",
    )
    assert found["a"].rounding == pytest.approx(0.5 * FLOAT32 / FLOAT16)
    assert found["b"].rounding == 0.5


def test_a_call_with_a_merged_one_rounds_like_both():
    found = list_errors(
        measured(("conv", "Conv2d"), ("norm", "BatchNorm2d"), partners=["norm"]),
        {"conv": ("Conv2d", 3e-6), "norm": ("BatchNorm2d", 1e-6)},
    )
    assert (found["norm"].rounding, found["norm"].kind) == (3e-6, "Conv2d")


def test_a_call_with_nothing_merged_is_of_its_own_kind():
    found = list_errors(measured(("act", "ReLU")), {"act": ("ReLU", 0.0)})
    assert found["act"].kind == "ReLU"
