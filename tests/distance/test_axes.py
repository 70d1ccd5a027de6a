"""Tensors of B that are tensors of A with other axes."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.distance.axes import axes_text, find_axes

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
