"""Which calls are to blame, given the own errors of all calls."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hookcli.distance.culprits import OwnError, find_culprits
from hookcli.distance.tolerance import coarser

ROUNDED = 1e-7


def errors(*own, kind="Conv2d", rounding=ROUNDED):
    return [OwnError(f"{kind}{n}", kind, each, rounding) for n, each in enumerate(own)]


def culprits(found):
    return [each.call_id for each in found.culprits]


def test_a_call_that_exceeds_rounding_and_its_like_is_a_culprit():
    found = find_culprits(errors(0, 1e-3, 2e-7, 0, 0), "float32")
    assert culprits(found) == ["Conv2d1"]
    assert found.worst.own == 1e-3
    assert not found.is_rounding


def test_eight_times_the_error_of_rounding_is_rounding():
    assert culprits(find_culprits(errors(0, 8e-7, 0, 0, 0), "float32")) == []
    assert culprits(find_culprits(errors(0, 8.1e-7, 0, 0, 0), "float32")) == ["Conv2d1"]


def test_the_tolerance_of_the_user_replaces_rounding():
    assert culprits(find_culprits(errors(0, 1e-3, 0, 0, 0), "float32", rtol=1e-3)) == []
    assert culprits(find_culprits(errors(0, 1e-8, 0, 0, 0), "float32", rtol=0)) == ["Conv2d1"]


def test_an_error_that_all_calls_of_a_type_share_has_no_culprit():
    found = find_culprits(errors(1e-3, 2e-3, 1e-3, 3e-3), "float32")
    assert culprits(found) == []
    assert found.spread == (("Conv2d", 4),)


def test_culprits_stand_out_by_more_than_ten_times_the_median_of_the_others():
    shared = errors(1e-3, 1e-3, 1e-3, 1e-2, kind="Linear")
    assert culprits(find_culprits(shared, "float32")) == []
    shared = errors(1e-3, 1e-3, 1e-3, 1.1e-2, kind="Linear")
    assert culprits(find_culprits(shared, "float32")) == ["Linear3"]


def test_few_calls_of_a_type_are_compared_with_all_calls():
    found = find_culprits([*errors(0, 0, 0, 0), *errors(1e-3, kind="Linear")], "float32")
    assert culprits(found) == ["Linear0"]


def test_a_fault_of_a_shared_module_is_not_hidden_by_its_own_other_calls():
    shared = [replace(each, call_id=f"f#{n}") for n, each in enumerate(errors(*[1e-3] * 4))]
    found = find_culprits([*shared, *errors(0, 0, 0, kind="ReLU")], "float32")
    assert culprits(found) == ["f#0", "f#1", "f#2", "f#3"]


def test_all_culprits_are_named_in_their_order():
    found = find_culprits(errors(0, 1e-2, 0, 1e-4, 0, 0, 0), "float32")
    assert culprits(found) == ["Conv2d1", "Conv2d3"]


def test_an_error_that_is_not_finite_is_a_culprit_but_not_the_largest_error():
    found = find_culprits(errors(1e-8, math.inf, 0, 0), "float32")
    assert culprits(found) == ["Conv2d1"]
    assert found.worst.own == 1e-8


def test_an_error_within_rounding_is_spread_over_the_types_that_share_it():
    found = find_culprits(
        [*errors(3e-3, 3e-3, rounding=5e-3), *errors(1e-3, kind="add", rounding=5e-3)], "bfloat16"
    )
    assert found.is_rounding
    assert found.spread == (("Conv2d", 2), ("add", 1))


def test_without_any_call_there_is_nobody_to_blame():
    found = find_culprits([], "float32")
    assert (found.culprits, found.spread, found.worst) == ((), (), None)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("float32", "float32"), "float32"),
        (("float32", "bfloat16"), "bfloat16"),
        (("float16", "bfloat16"), "bfloat16"),
        (("float64", "float16"), "float16"),
    ],
)
def test_the_coarser_dtype_has_fewer_digits(dtypes, expected):
    assert coarser(*dtypes) == expected


def test_calls_with_a_merged_convolution_are_like_convolutions():
    """A quantizer merges a convolution into one of four ReLUs."""
    shared = [*errors(1e-2, 2e-2, 1e-2, 1e-2), *errors(0, 0, 0, 0, kind="ReLU")]
    fused = OwnError("relu", "ReLU", 1e-2, ROUNDED, kind="Conv2d")
    assert culprits(find_culprits([*shared, fused], "float32")) == []
    alone = OwnError("relu", "ReLU", 1e-2, ROUNDED)
    assert culprits(find_culprits([*shared, alone], "float32")) == ["relu"]


def shown(own, rounding, channels=(), channel_rounding=()):
    return OwnError("c", "Own", own, rounding, channels, channel_rounding)


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ((0, 6.4e-6), []),  # 8 times the usual 8 times that rounding explains
        ((0, 6.5e-6), ["c"]),
        ((8e-7, 1e-6), []),
        ((8.1e-7, 1e-6), ["c"]),
    ],
)
def test_the_worst_of_many_channels_may_be_farther_off_than_the_median_one(channels, expected):
    error = shown(0.0, 1.0, channels, (ROUNDED, ROUNDED))
    assert culprits(find_culprits([error], "float32")) == expected


def test_the_median_channel_is_judged_by_its_own_rounding():
    error = shown(0.0, 1.0, (1e-6, 1e-6), (ROUNDED, 1.0))
    assert culprits(find_culprits([error], "float32")) == ["c"]


def test_a_tolerance_of_the_user_leaves_channels_the_error_of_rounding():
    error = shown(0.0, 1.0, (1e-4, 1e-4), (1e-4, 1e-4))
    assert culprits(find_culprits([error], "float32", rtol=1e-6)) == []
    assert culprits(find_culprits([shown(1e-4, 1.0)], "float32", rtol=1e-6)) == ["c"]


def test_three_other_calls_of_a_type_are_enough_to_compare_with():
    others = errors(*[0] * 9, kind="ReLU")
    assert culprits(find_culprits([*errors(*[1e-3] * 4, kind="add"), *others], "float32")) == []
    found = find_culprits([*errors(*[1e-3] * 3, kind="add"), *others], "float32")
    assert culprits(found) == ["add0", "add1", "add2"]


def test_few_linear_layers_are_compared_with_the_convolutions():
    """A quantizer changes both alike, and no other layer."""
    others = errors(*[0] * 9, kind="ReLU")
    shared = [*errors(*[1e-2] * 3), *errors(1e-2, kind="Linear"), *others]
    assert culprits(find_culprits(shared, "float32")) == []
    shared = [*errors(*[1e-2] * 4), *errors(1e-2, kind="Softmax"), *others]
    assert culprits(find_culprits(shared, "float32")) == ["Softmax0"]


def test_two_layers_with_weights_are_too_few_to_compare_with():
    shared = [*errors(*[1e-2] * 2), *errors(*[0] * 9, kind="ReLU")]
    assert culprits(find_culprits(shared, "float32")) == ["Conv2d0", "Conv2d1"]


def test_the_type_with_the_largest_squares_of_errors_comes_first():
    found = find_culprits([*errors(3e-8, kind="Linear"), *errors(*[2e-8] * 2)], "float32")
    assert found.spread == (("Linear", 1), ("Conv2d", 2))


def test_only_calls_beyond_rounding_share_an_error_that_is_none():
    found = find_culprits([*errors(*[1e-3] * 4), *errors(1e-8, kind="ReLU")], "float32")
    assert found.spread == (("Conv2d", 4),)


def test_the_calls_of_an_operation_share_no_fault():
    calls = [replace(each, call_id=f"op:add#{n}") for n, each in enumerate(errors(*[1e-3] * 4))]
    found = find_culprits([*calls, *errors(*[0] * 9, kind="ReLU")], "float32")
    assert culprits(found) == []


def test_the_outputs_of_one_module_share_its_fault():
    calls = [replace(each, call_id=f"f[{n}]") for n, each in enumerate(errors(*[1e-3] * 4))]
    found = find_culprits([*calls, *errors(*[0] * 9, kind="ReLU")], "float32")
    assert len(culprits(found)) == 4


def test_an_error_is_scored_by_the_figure_that_rounding_explains_least():
    assert shown(0.0, 0.0).score == 0
    assert shown(1e-9, 0.0).score == math.inf
    assert shown(2.0, 1.0, (6.0, 8.0), (2.0, 1.0)).score == 3


def test_a_convolution_is_compared_with_calls_into_which_one_was_merged():
    merged = [replace(each, kind="Conv2d") for each in errors(*[1e-2] * 3, kind="ReLU")]
    others = [*errors(*[0] * 4, kind="ReLU"), *errors(*[0] * 4, kind="Linear")]
    assert culprits(find_culprits([*errors(1e-2), *merged, *others], "float32")) == []


@pytest.mark.parametrize(("largest", "names"), [(4.9e-3, []), (5.1e-3, ["Conv2d0"])])
def test_among_many_calls_with_like_errors_five_times_the_median_stands_out(largest, names):
    own = [largest, *(1e-3 * (1 + n / 100) for n in range(-8, 9))]
    assert culprits(find_culprits(errors(*own), "float32")) == names


def test_among_many_calls_with_scattered_errors_ten_times_the_median_stands_out():
    own = [9e-3, *(1e-3 * 8.0 ** (n / 8) for n in range(-8, 9))]
    assert culprits(find_culprits(errors(*own), "float32")) == []


@pytest.mark.parametrize(
    ("own", "channels", "names"),
    [
        (8e-2, (8e-2, 48e-2), []),
        (8.1e-2, (0.0, 0.0), ["Conv2d0"]),
        (0.0, (8.1e-2, 0.0), ["Conv2d0"]),
        (0.0, (0.0, 48.1e-2), ["Conv2d0"]),
    ],
)
def test_quantizing_explains_48_times_its_error_in_the_worst_channel(own, channels, names):
    one = replace(shown(own, ROUNDED, channels, (ROUNDED, ROUNDED)), call_id="Conv2d0", noise=1e-2)
    assert culprits(find_culprits([one], "float32")) == names


@pytest.mark.parametrize(("noise", "names"), [(1e-3, []), (5e-4, ["Conv2d0"])])
def test_among_like_layers_one_beyond_eight_times_its_own_noise_stands_out(noise, names):
    """All are off by 1e-3, one by 5e-3, which is less than ten times the others."""
    first, *others = errors(5e-3, *[1e-3] * 9)
    found = find_culprits([replace(first, noise=noise), *others], "float32")
    assert culprits(found) == names
