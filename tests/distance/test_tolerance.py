"""The error that an operator may make whatever its output, by its range and the dtype."""

from __future__ import annotations

import math

import pytest

from hookcli.distance.judge import CallPair, CallTensor, Judge
from hookcli.distance.metrics import Distance, Size
from hookcli.distance.tolerance import Tolerance, floor_of, matches
from hookcli.errors import RequestError


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("Sigmoid", "float32", 4 * 2**-23),
        ("softmax", "float64", 4 * 2**-52),
        ("_log_softmax", "float32", 4 * 2**-23),
        ("Tanh", "float16", 4 * 2**-23),
        ("hard_sigmoid", "bfloat16", 4 * 2**-23),
        ("SiLU", "float32", 0),
        ("LayerNormalization", "float32", 4 * 2**-23),
        ("Conv2d", "float32", 0),
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


def test_the_tolerance_of_a_cosine_is_half_the_square_of_the_other():
    tolerance = Tolerance("cosine")
    assert tolerance.rtol_of("a", ["float16"], sketched=False) == pytest.approx(1.25e-5)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [(["float64"], 1e-6), (["float32"], 1e-5), (["int64"], 0.0)],
)
def test_a_sketch_has_a_least_tolerance_unless_values_must_be_equal(dtypes, expected):
    assert Tolerance().rtol_of("a", dtypes, sketched=True) == expected


def test_complex_numbers_have_the_tolerance_of_their_parts():
    names = ("complex32", "complex64", "complex128")
    found = [Tolerance().rtol_of("a", [name], sketched=False) for name in names]
    assert found == [5e-3, 1e-5, 1e-12]


def test_the_last_pattern_that_matches_a_call_has_its_tolerance():
    tolerance = Tolerance(rtol=1.0, layers=(("layer*", 0.1), ("layer1.*", 0.2), ("fc", 0.3)))
    found = [tolerance.chosen_for(each) for each in ("layer1.conv", "layer2", "other")]
    assert found == [0.2, 0.1, 1.0]


@pytest.mark.parametrize(
    ("glob", "call_id", "expected"),
    [
        ("block", "block", True),
        ("block", "block#1", True),
        ("block", "block[0]", True),
        ("block#1", "input:block#1", True),
        ("block[0]", "block[0]", True),
        ("block[01]", "block0", False),
        ("block", "blocks", False),
        ("block.?", "block.1", True),
        ("block.?", "block.10", False),
    ],
)
def test_a_pattern_names_calls_or_outputs_or_all_calls_of_a_layer(glob, call_id, expected):
    assert matches(glob, call_id) is expected


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "cosine_similarity"])
def test_operations_have_the_floors_of_the_layers(name):
    assert floor_of([name], "float32") == floor_of([name.replace("_", "").title()], "float32") > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"rtol": math.inf}, "`rtol` inf: not a finite number"),
        ({"rtol": math.nan}, "`rtol` nan: not a finite number"),
        ({"atol": math.inf}, "`atol` inf: not a finite number"),
        ({"metric": "cosine", "atol": 0.1}, "`atol` has no effect on `metric='cosine'`"),
    ],
)
def test_a_tolerance_without_effect_is_refused(words, message):
    with pytest.raises(RequestError) as refused:
        Tolerance(**words)
    assert refused.value.message == message


def test_a_largest_difference_may_have_an_absolute_tolerance():
    assert Tolerance("max-abs", atol=0.1).atol == 0.1
