"""Which calls are to blame, given the own errors of all calls."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hookcli.distance.culprits import OwnError, find_culprits

ROUNDED = 1e-7


def errors(*own, kind="Conv2d", rounding=ROUNDED):
    return [OwnError(f"{kind}{n}", kind, each, rounding) for n, each in enumerate(own)]


def culprits(found):
    return [each.call_id for each in found.culprits]


def many(*own, kind="Own", kinds="", call_id="{}"):
    return [
        replace(each, call_id=call_id.format(f"{kind}{n}"), kind=kinds)
        for n, each in enumerate(errors(*own, kind=kind))
    ]


ACTS = errors(*[0] * 9, kind="ReLU")


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (errors(0, 1e-3, 2e-7, 0, 0), "Conv2d1"),
        (errors(0, 8e-7, 0, 0, 0), ""),  # eight times the error of rounding
        (errors(0, 8.1e-7, 0, 0, 0), "Conv2d1"),
        (errors(0, 1e-2, 0, 1e-4, 0, 0, 0), "Conv2d1 Conv2d3"),
        (errors(1e-8, math.inf, 0, 0), "Conv2d1"),
        # beside errors of its like: ten times the median of the others
        (errors(1e-3, 1e-3, 1e-3, 1e-2, kind="Linear"), ""),
        (errors(1e-3, 1e-3, 1e-3, 1.1e-2, kind="Linear"), "Linear3"),
        # three others of its kind are enough to compare with; otherwise, all calls are
        ([*errors(*[1e-3] * 4, kind="add"), *ACTS], ""),
        ([*errors(*[1e-3] * 3, kind="add"), *ACTS], "add0 add1 add2"),
        # a quantizer changes linear layers and convolutions alike
        ([*errors(*[1e-2] * 3), *errors(1e-2, kind="Linear"), *ACTS], ""),
        ([*errors(*[1e-2] * 4), *errors(1e-2, kind="Softmax"), *ACTS], "Softmax0"),
        ([*errors(*[1e-2] * 2), *ACTS], "Conv2d0 Conv2d1"),
        # the calls and the outputs of one module share its fault, and those of an operation do not
        ([*many(*[1e-3] * 2, call_id="f#{}"), *ACTS[:3]], "f#Own0 f#Own1"),
        ([*many(*[1e-3] * 4, call_id="f[{}]"), *ACTS], "f[Own0] f[Own1] f[Own2] f[Own3]"),
        ([*many(*[1e-3] * 4, call_id="op:add#{}"), *ACTS], ""),
        # a quantizer merges a convolution into a ReLU
        ([*errors(1e-2, 2e-2, 1e-2, 1e-2), *ACTS, *many(1e-2, kind="act", kinds="Conv2d")], ""),
        ([*errors(1e-2, 2e-2, 1e-2, 1e-2), *ACTS, *many(1e-2, kind="ReLU6")], "ReLU60"),
        (
            [*errors(1e-2), *many(*[1e-2] * 3, kinds="Conv2d"), *ACTS, *errors(0, kind="Linear")],
            "",
        ),
        # among many, five times the median, or up to ten times if the others scatter
        (errors(4.9e-3, *(1e-3 * (1 + n / 100) for n in range(-8, 9))), ""),
        (errors(5.1e-3, *(1e-3 * (1 + n / 100) for n in range(-8, 9))), "Conv2d0"),
        (errors(9e-3, *(1e-3 * 8.0 ** (n / 8) for n in range(-8, 9))), ""),
    ],
)
def test_a_call_that_exceeds_rounding_and_its_like_is_a_culprit(calls, expected):
    assert culprits(find_culprits(calls, "float32")) == expected.split()


def test_the_worst_call_is_the_one_with_the_largest_finite_error():
    found = find_culprits(errors(1e-8, math.inf, 0, 0), "float32")
    assert (found.worst.own, found.is_rounding) == (1e-8, False)


def test_the_tolerance_of_the_user_replaces_rounding():
    assert culprits(find_culprits(errors(0, 1e-3, 0, 0, 0), "float32", rtol=1e-3)) == []
    assert culprits(find_culprits(errors(0, 1e-8, 0, 0, 0), "float32", rtol=0)) == ["Conv2d1"]


def test_an_error_within_rounding_is_spread_over_the_types_that_share_it():
    found = find_culprits(
        [*errors(3e-3, 3e-3, rounding=5e-3), *errors(1e-3, kind="add", rounding=5e-3)], "bfloat16"
    )
    assert found.is_rounding
    assert found.spread == (("Conv2d", 2), ("add", 1))


def test_without_any_call_there_is_nobody_to_blame():
    found = find_culprits([], "float32")
    assert (found.culprits, found.spread, found.worst) == ((), (), None)


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


def test_the_type_with_the_largest_squares_of_errors_comes_first():
    found = find_culprits([*errors(3e-8, kind="Linear"), *errors(*[2e-8] * 2)], "float32")
    assert found.spread == (("Linear", 1), ("Conv2d", 2))


def test_only_calls_beyond_rounding_share_an_error_that_is_none():
    found = find_culprits([*errors(*[1e-3] * 4), *errors(1e-8, kind="ReLU")], "float32")
    assert found.spread == (("Conv2d", 4),)


def test_an_error_is_scored_by_the_figure_that_rounding_explains_least():
    assert shown(0.0, 0.0).score == 0
    assert shown(1e-9, 0.0).score == math.inf
    assert shown(2.0, 1.0, (6.0, 8.0), (2.0, 1.0)).score == 3


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
