"""The distances of channels, with numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.distance.metrics import axes_text, find_axes, measure_arrays, measure_channels


def channels(*values):
    """An array (1, C, 2) in which both values of a channel are the same."""
    return np.array([[[value, value] for value in values]], "f4")


def test_the_median_and_the_worst_channel_are_measured_relative_to_themselves():
    a, b = channels(1, 2, 400), channels(1.1, 3, 400)
    assert measure_channels(a, b, 1) == pytest.approx((0.1, 0.5))
    assert measure_arrays(a, b).rel_l2 < 0.003
    assert measure_arrays(a, b, 1).channels == measure_channels(a, b, 1)


def test_the_axis_of_the_channels_may_be_the_last():
    a, b = (np.moveaxis(each, 1, 2) for each in (channels(1, 2), channels(1, 3)))
    assert measure_channels(a, b, 2) == pytest.approx((0.25, 0.5))


def test_a_weak_channel_counts_as_a_tenth_of_the_usual_one():
    """Of the norms, 2 is the median of those that are not zero, so 0.2 is the least."""
    a, b = channels(0, 1, 2, 3), channels(0.1, 1, 2, 3)
    assert measure_channels(a, b, 1) == pytest.approx((0, 0.5))


def test_channels_that_are_zero_in_both_do_not_count():
    """After a ReLU, most channels of a small model may be zero."""
    a, b = channels(0, 0, 0, 1, 2), channels(0, 0, 0, 1.1, 3)
    assert measure_channels(a, b, 1) == pytest.approx((0.3, 0.5))
    assert measure_channels(channels(0, 0), channels(0, 0), 1) == (0, 0)


def test_a_difference_within_the_floor_counts_as_none():
    a, b = channels(1e-8, 1), channels(2e-8, 1.5)
    assert measure_channels(a, b, 1, floor=1e-7) == pytest.approx((0.25, 0.5))


def test_channels_without_a_finite_distance_are_unknown():
    assert measure_channels(channels(1, 2), channels(1, np.inf), 1) is None
    assert measure_channels(channels(np.inf), channels(np.inf), 1) is None
    assert measure_channels(np.zeros((1, 0, 2)), np.zeros((1, 0, 2)), 1) is None
    assert measure_channels(channels(0), channels(1), 1) == (np.inf, np.inf)


VALUES = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype("f4")


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ((0, 1, 3, 2), "axes 2 and 3 are swapped"),
        ((0, 2, 3, 1), "B has the axes 0, 2, 3, 1 of A"),
    ],
)
def test_the_order_of_the_axes_is_found_and_named(order, text):
    assert find_axes(VALUES, VALUES.transpose(order)) == order
    assert axes_text(order) == text


@pytest.mark.parametrize(
    "other",
    [VALUES, 2 * VALUES.transpose(0, 2, 3, 1), VALUES[..., :2], VALUES.reshape(1, 12, 4)],
    ids=["the same", "other values", "another shape", "other axes"],
)
def test_other_tensors_are_not_taken_for_transposed_ones(other):
    assert find_axes(VALUES, other) == ()
