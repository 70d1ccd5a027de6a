"""Principal components, against numpy's singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.analysis.components import find_components
from hookcli.errors import RequestError

DRAW = np.random.default_rng(0)
ROWS = (DRAW.normal(size=(500, 12)) @ np.diag(np.arange(12, 0, -1)) + 50).astype(np.float32)


def decompose(rows, count):
    """The first components by the definition, with the sign that the docstring promises."""
    centered = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    _, singular, directions = np.linalg.svd(centered, full_matrices=False)
    axes = directions[:count]
    signs = [np.sign(axis[np.abs(axis).argmax()]) for axis in axes]
    return axes * np.array(signs)[:, None], singular**2 / len(rows)


@pytest.mark.parametrize("parts", [1, 7])
def test_components_equal_the_singular_value_decomposition_in_any_number_of_blocks(parts):
    axes, variances = decompose(ROWS, 3)
    found = find_components(np.array_split(ROWS, parts), 3)
    assert found.axes == pytest.approx(axes, abs=1e-4)
    assert found.mean == pytest.approx(ROWS.mean(0, dtype=np.float64), abs=1e-6)
    assert found.spread**2 == pytest.approx(variances[:3], rel=1e-6)
    assert found.explained == pytest.approx(variances[:3] / variances.sum(), rel=1e-6)


@pytest.mark.parametrize("shape", [(40, 3000), (1000, 520)])
def test_wide_features_have_the_same_components(shape):
    scales = 1 / np.arange(1, shape[1] + 1) ** 0.7
    rows = (DRAW.normal(size=shape) * scales + 3).astype(np.float32)
    axes, variances = decompose(rows, 3)
    found = find_components(np.array_split(rows, 5), 3)
    assert found.axes == pytest.approx(axes, abs=1e-4)
    assert found.explained == pytest.approx(variances[:3] / variances.sum(), rel=1e-6)


def test_wide_features_without_a_leading_direction_have_components_too():
    """All directions vary about alike, so that a few steps do not tell them apart."""
    rows = DRAW.normal(size=(900, 520)).astype(np.float32)
    _, variances = decompose(rows, 3)
    assert find_components([rows], 3).explained == pytest.approx(variances[:3] / variances.sum())


def test_the_sign_does_not_depend_on_the_order_of_the_rows():
    one, two = find_components([ROWS], 3), find_components([ROWS[::-1]], 3)
    assert one.axes == pytest.approx(two.axes, abs=1e-6)
    coordinates = one.project(ROWS)
    assert coordinates.mean(0) == pytest.approx([0, 0, 0], abs=1e-4)
    assert coordinates.std(0) == pytest.approx(one.spread, rel=1e-5)
    for axis in one.axes:
        assert axis[np.abs(axis).argmax()] > 0


def test_too_few_rows_and_constant_features_are_refused():
    with pytest.raises(RequestError, match="there are 3 rows of 12 features"):
        find_components([ROWS[:3]], 3)
    with pytest.raises(RequestError, match="there are 500 rows of 2 features"):
        find_components([ROWS[:, :2]], 3)
    with pytest.raises(RequestError, match="the same everywhere"):
        find_components([np.full((100, 12), 0.1, np.float32)], 3)
