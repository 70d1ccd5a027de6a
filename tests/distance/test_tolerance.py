"""The error that an operator may make whatever its output, by its range and the dtype."""

from __future__ import annotations

import math

import pytest

from hookcli.distance.judge import CallPair, CallTensor, Judge
from hookcli.distance.metrics import Distance, Size
from hookcli.distance.tolerance import Tolerance, floor_of
from hookcli.errors import RequestError


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("Sigmoid", "float32", 4 * 2**-23),
        ("_log_softmax", "float64", 4 * 2**-52),
        ("hard_sigmoid", "bfloat16", 4 * 2**-23),
        ("SiLU", "float32", 0),
        ("LayerNormalization", "float32", 4 * 2**-23),
        ("BatchNorm2d", "float32", 0),
        ("Sigmoid", "int8", 0),
    ],
)
def test_the_floor_follows_from_the_range_and_the_dtype(name, dtype, expected):
    assert floor_of([name], dtype) == expected


def test_a_gate_has_a_floor_only_if_it_is_saturated():
    assert floor_of(["SiLU"], "float32", is_saturated=True) == 32 * 2**-23
    assert floor_of(["GELUActivation"], "bfloat16", is_saturated=True) == 32 * 2**-23
    assert floor_of(["Hardswish"], "float32", is_saturated=True) == 0
    assert floor_of(["ReLU"], "float32", is_saturated=True) == 0


def judge(kind, apart, size, tolerance=None, dtype="float32", coarsest=""):
    """The row of a call whose output has the size ``size`` and differs by ``apart``."""
    tensor = CallTensor("a", kind, (1, 2), dtype, coarsest=coarsest)
    sizes = [Size(each, each, each, 2) for each in (apart, size, size)]
    pair = CallPair("cat", tensor, tensor, Distance(sizes[0], sizes[1], sizes[2], cosine=1.0))
    return Judge(tolerance or Tolerance()).judge(pair).row


def test_a_saturated_sigmoid_holds_and_a_convolution_does_not():
    assert judge("Sigmoid", 1e-7, 1e-8).holds
    assert not judge("Conv2d", 1e-7, 1e-8).holds
    assert not judge("Sigmoid", 1e-6, 1e-8).holds


def test_an_output_of_usual_size_has_the_tolerance_of_its_dtype():
    assert judge("Sigmoid", 1e-6, 0.5).tolerance == 1e-5


def test_a_tolerance_that_the_user_chose_has_no_floor():
    assert not judge("Sigmoid", 1e-7, 1e-8, Tolerance(rtol=1e-5)).holds
    assert not judge("Sigmoid", 1e-7, 1e-8, Tolerance(layers=(("a", 1e-5),))).holds


def test_the_tolerance_follows_the_coarsest_dtype_on_the_way():
    assert not judge("Conv2d", 1e-3, 1).holds
    assert judge("Conv2d", 1e-3, 1, coarsest="float16").tolerance == 5e-3


def test_complex_numbers_have_the_tolerance_of_their_parts():
    names = ("complex32", "complex64", "complex128")
    found = [Tolerance().rtol_of("a", [name], sketched=False) for name in names]
    assert found == [5e-3, 1e-5, 1e-12]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"rtol": math.inf}, "`rtol` inf: not a finite number"),
        ({"atol": math.inf}, "`atol` inf: not a finite number"),
        ({"metric": "cosine", "atol": 0.1}, "`atol` has no effect on `metric='cosine'`"),
    ],
)
def test_a_tolerance_without_effect_is_refused(words, message):
    with pytest.raises(RequestError) as refused:
        Tolerance(**words)
    assert refused.value.message == message
