"""Neighbours, near duplicates and outliers."""

from __future__ import annotations

import numpy as np
import pytest

from hookcli.analysis.map import (
    find_neighbours,
    list_neighbours,
    map_images,
)
from hookcli.errors import RequestError

DRAW = np.random.default_rng(0)


def cloud(count=60, width=64):
    """Features of images that are alike only by chance."""
    return (DRAW.normal(size=(count, width)) + 0.5).astype(np.float32)


def test_neighbours_are_those_with_the_largest_cosine():
    features = cloud()
    found = find_neighbours(features, 5)
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    distances = 1 - units.astype(np.float64) @ units.T
    np.fill_diagonal(distances, np.inf)
    assert np.array_equal(found.places, distances.argsort(1)[:, :5])
    assert found.distances == pytest.approx(np.sort(distances, 1)[:, :5], abs=1e-6)


def test_near_duplicates_are_found_in_pairs_and_in_groups():
    features = cloud()
    noise = DRAW.normal(scale=0.01, size=(4, 64)).astype(np.float32)
    copies = features[[3, 20, 20, 40]] + noise
    copies[3] = 2.5 * features[40]  # the same direction
    features = np.concatenate([features, copies])
    assert find_neighbours(features, 10).duplicates == [(3, 60), (20, 61, 62), (40, 63)]


def test_images_that_are_alike_only_by_chance_are_no_duplicates():
    for count in (3, 5, 60):
        assert find_neighbours(cloud(count), 10).duplicates == []


@pytest.mark.parametrize(("listed", "copies"), [(1, 2), (10, 7), (2, 30), (40, 30)])
def test_a_group_may_have_more_copies_than_listed_neighbours(listed, copies):
    features = cloud()
    same = np.repeat(features[5:6], copies, axis=0)
    found = find_neighbours(np.concatenate([features, same]), listed)
    assert found.places.shape == (60 + copies, listed)
    assert found.duplicates == [(5, *range(60, 60 + copies))]


def test_up_to_20_copies_that_differ_a_little_are_a_group():
    features = cloud(200)
    for copies, crowded in ((20, 0), (21, 22), (40, 41)):
        noise = DRAW.normal(scale=0.01, size=(copies, 64)).astype(np.float32)
        found = find_neighbours(np.concatenate([features, features[5] + noise]), 10)
        group = (5, *range(200, 200 + copies))
        assert (group in found.duplicates) == (not crowded)
        in_pairs = sum(len(pair) for pair in found.duplicates if pair != group)  # by chance
        assert found.crowded + in_pairs == crowded


def test_features_of_zero_are_at_right_angles_to_all_others():
    features = cloud(30)
    features[4] = 0
    found = find_neighbours(features, 29)
    assert found.distances[4] == pytest.approx(1)
    assert all(
        4 in places[list(distances > 0.99)]
        for places, distances in zip(
            np.delete(found.places, 4, 0), np.delete(found.distances, 4, 0), strict=True
        )
    )


def test_of_a_few_images_only_exact_copies_are_duplicates():
    features = cloud(5)
    features[1], features[3] = features[0], features[2] + 0.05 * features[4]
    assert find_neighbours(features, 3).duplicates == [(0, 1)]


def test_outliers_are_far_from_their_neighbours_and_come_first():
    features = cloud()
    features[[7, 30]] = 0
    features[7, 0], features[30, 5] = -9, -9
    keys = [f"photo{n}" for n in range(60)]
    neighbours = find_neighbours(features, 10)
    rows, groups, explained = map_images(keys, features, neighbours, {"photo7": "odd"})
    assert {row.image for row in rows[:2]} == {"photo7", "photo30"}
    assert [row.rank for row in rows] == list(range(1, 61))
    assert {row.image: row.label for row in rows}["photo7"] == "odd"
    assert groups == []
    assert 0 < explained[1] <= explained[0] < 1
    assert rows[0].outlier_score == pytest.approx(neighbours.distances.mean(1).max())
    listed = [*list_neighbours(keys, neighbours)]
    assert [(row.image, row.rank) for row in listed[9:11]] == [("photo0", 10), ("photo1", 1)]
    assert listed[0].neighbour == keys[neighbours.places[0, 0]]


def test_too_few_images_and_features_of_zero_are_refused():
    with pytest.raises(RequestError, match="at least 3 images, not 2"):
        find_neighbours(cloud(2), 1)
    with pytest.raises(RequestError, match="zero for all images"):
        find_neighbours(np.zeros((5, 3), np.float32), 1)


def chain(step, count=3):
    """Features at angles of a fan, each ``step`` from the next in distance, and a cloud apart."""
    angles = np.arange(count) * np.arccos(1 - step)
    fan = np.zeros((count, 64), np.float32)
    fan[:, 0], fan[:, 1] = np.cos(angles), np.sin(angles)
    return np.concatenate([fan, cloud()])


def test_a_distance_of_near_duplicates_may_be_chosen():
    features = chain(0.01, 2)
    assert find_neighbours(features, 3, 0.011).duplicates == [(0, 1)]
    found = find_neighbours(features, 3, 0.009)
    assert (found.duplicates, found.near) == ([], 0.009)


def test_groups_of_near_duplicates_do_not_chain():
    features = chain(0.01, 6)
    groups = find_neighbours(features, 3, 0.011).duplicates
    assert groups == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize("near", [None, 0.05])
def test_any_two_images_of_a_group_are_within_the_stated_distance(near):
    copies = np.repeat(cloud(20), 6, axis=0)
    features = copies + DRAW.normal(scale=0.25, size=copies.shape).astype(np.float32)
    found = find_neighbours(features, 3, near)
    units = features / np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    distances = 1 - units @ units.T
    assert found.duplicates
    for group in found.duplicates:
        assert distances[np.ix_(group, group)].max() <= found.near + 1e-6


def test_a_distance_that_links_too_many_images_is_refused(monkeypatch):
    monkeypatch.setattr("hookcli.analysis.map._MOST_LINKS", 1000)
    with pytest.raises(RequestError, match="100% of all pairs of images are at most 2 apart"):
        find_neighbours(cloud(), 3, 2.0)


@pytest.mark.parametrize("scale", [1e-30, 1e60])
def test_the_scale_of_features_does_not_change_the_layout(scale):
    features = cloud()
    keys = [str(n) for n in range(60)]
    rows, _, explained = map_images(keys, features, find_neighbours(features, 5), {})
    scaled = (features * np.array(scale)).astype("f4" if scale < 1e38 else "f8")
    far, _, shares = map_images(keys, scaled, find_neighbours(scaled, 5), {})
    assert shares == pytest.approx(explained, rel=1e-4)
    assert [row.x / scale for row in far] == pytest.approx([row.x for row in rows], abs=1e-3)
