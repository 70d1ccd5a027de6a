"""A map of a run's images by the features of one layer: neighbours, near duplicates, outliers.

The distance of two images is one minus the cosine of the angle between their pooled features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hookcli.analysis.components import find_components, split_rows
from hookcli.analysis.features import check_finite, find_directions
from hookcli.errors import RequestError
from hookcli.outside.documents import AtLeastOne, Distance, Whole
from hookcli.outside.foreign import require_package
from hookcli.records.analysis import AnalysisDocument

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features

LEAST = 3  # images of a map

CLOSER = 0.7
"""A near duplicate is at most this many times as far away as the next image.

Measured with the trained EfficientNet-Lite0 on 500 drawn scenes and 20 copies of them, compressed
again (quality 70) or cropped by 5 %: the copies were 0.2 to 0.7 times as far as the next image in
the last layers, and all but one of the other pairs at least 0.73 times.
"""

NEAR = 0.3
"""A near duplicate is at most this many times as far away as half of all pairs of images.

In the same measurement, copies were at most 0.28 times as far. Without this limit, a few photos
that have little in common would have duplicates.
"""

_MOST_ALIKE = 20  # near duplicates that an image may have, unless they are exact copies
_ENOUGH = 10  # images that show how far apart images usually are
_SAME = 1e-6  # a distance that is rounding
_SAMPLE = 1000  # images whose distances from each other are typical
_MEMORY = 64  # MiB of distances at a time


@dataclass(frozen=True, slots=True)
class MapRow:
    """An image on the map.

    Attributes:
        image: the key of the image.
        label: the label of the image; empty without labels.
        x: the first principal component of the image's features.
        y: the second principal component.
        rank: the rank of the image by ``outlier_score``, from 1 for the image that is farthest from
            its neighbours.
        outlier_score: the mean distance of the image from its nearest neighbours.
        nearest: the key of the nearest image.
        distance: the distance of the nearest image: one minus the cosine of the features.
        group: the number of the image's group of near duplicates, from 1; null without one.
    """

    image: str
    label: str
    x: float
    y: float
    rank: AtLeastOne
    outlier_score: Distance
    nearest: str
    distance: Distance
    group: AtLeastOne | None


@dataclass(frozen=True, slots=True)
class NeighbourRow:
    """One of the nearest images of an image.

    Attributes:
        image: the key of the image.
        rank: 1 for the nearest image, then 2, and so on.
        neighbour: the key of the other image.
        distance: one minus the cosine of the two images' features.
    """

    image: str
    rank: AtLeastOne
    neighbour: str
    distance: Distance


@dataclass(frozen=True, slots=True, kw_only=True)
class MapDocument(AnalysisDocument):
    """The output of ``hookcli map --format json``.

    Attributes:
        layer: the id of the call whose features were compared.
        features: the number of features of an image.
        explained: the shares of the variance that the two axes of the map have.
        duplicates: groups of near duplicates, each with the keys of its images.
        crowded: the number of images to which more than 20 others are near, at about the same
            distance; they are in no group.
        images: one row for each image, the one with the largest outlier score first.
        neighbours: the nearest images of each image, in the order of the run.
    """

    layer: str
    features: Whole
    explained: tuple[float, float]
    duplicates: tuple[tuple[str, ...], ...]
    crowded: Whole
    images: tuple[MapRow, ...]
    neighbours: tuple[NeighbourRow, ...]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest images of each image.

    Attributes:
        places: the positions of the nearest images, (images, N), the nearest first.
        distances: their distances, (images, N).
        duplicates: groups of near duplicates, as positions of images, in ascending order. Two
            images are near duplicates if each is much closer to the other than to the next image
            that is no duplicate (``CLOSER``), and much closer than two images usually are
            (``NEAR``). Of fewer than ten images, only exact copies are found.
        crowded: the number of images to which more than 20 others are near, at about the same
            distance; they are in no group.
    """

    places: NDArray[np.int64]
    distances: NDArray[np.float64]
    duplicates: list[tuple[int, ...]]
    crowded: int


def find_neighbours(features: Features, count: int) -> Neighbours:
    """Return the nearest images of each image, by scikit-learn.

    Args:
        features: features (images, C); a row of zeros has the distance 1 from all other rows.
        count: the number of neighbours; fewer are found if there are fewer images.

    Raises:
        RequestError: scikit-learn is missing, there are fewer than three images, or all features
            are zero, NaN or Inf.
    """
    require_package("a map needs", "sklearn", "scikit-learn", "analysis")
    from sklearn import config_context
    from sklearn.neighbors import NearestNeighbors

    if len(features) < LEAST:
        raise RequestError(
            f"a map needs at least {LEAST} images, not {len(features)}", "run more images"
        )
    check_finite(features)
    directions = find_directions(features)
    is_zero: NDArray[np.bool_] = ~np.any(directions, axis=1)
    if is_zero.all():
        raise RequestError("the features are zero for all images", "choose another of `layers`")
    if is_zero.any():  # they get a direction of their own, at right angles to all others
        directions = np.hstack([directions, is_zero[:, None].astype(np.float32)])
    searched = min(max(count, _MOST_ALIKE + 1), len(directions) - 1)
    with config_context(working_memory=_MEMORY):
        search = NearestNeighbors(n_neighbors=searched, algorithm="brute").fit(directions)
        distances, places = search.kneighbors()
    # half of the squared distance of two vectors of length 1 is one minus their cosine
    distances = distances.astype(np.float64) ** 2 / 2
    sample = directions[:: -(-len(directions) // _SAMPLE)]
    products = sample @ sample.T
    typical = float(np.median(1 - products[np.triu_indices(len(sample), 1)]))
    judged = slice(None, _MOST_ALIKE + 1)
    duplicates, crowded = _find_duplicates(places[:, judged], distances[:, judged], typical)
    return Neighbours(places[:, :count], distances[:, :count], duplicates, crowded)


def _find_duplicates(
    places: NDArray[np.int64], distances: NDArray[np.float64], typical: float
) -> tuple[list[tuple[int, ...]], int]:
    """Return groups of near duplicates, and the number of images in too dense a place.

    The nearest images, (images, N), come nearest first. Half of all pairs are farther apart than
    ``typical``.
    """
    near = max(_SAME, NEAR * typical) if len(places) >= _ENOUGH else _SAME
    counts = [_count_alike(each, near) for each in distances]
    found = [set(map(int, each[:count])) for each, count in zip(places, counts, strict=True)]
    links: list[set[int]] = [set() for _ in found]
    for one, others in enumerate(found):
        for two in others:
            # An image with more copies than are judged does not find all of them.
            if one in found[two] or counts[two] == places.shape[1]:
                links[one].add(two)
                links[two].add(one)
    has_more = len(places) - 1 > places.shape[1]
    crowded = sum(
        has_more and not own and bool(each[-1] <= near)
        for each, own in zip(distances, links, strict=True)
    )
    return list(_list_connected(links)), crowded


def _count_alike(distances: NDArray[np.float64], near: float) -> int:
    """Return how many of the nearest images look like copies; ``distances`` ascend."""
    if distances[-1] <= _SAME:
        return len(distances)
    for count in range(len(distances) - 1, 0, -1):
        last, following = distances[count - 1], distances[count]
        if last <= near and last <= max(_SAME, CLOSER * following):
            return count
    return 0


def _list_connected(links: Sequence[Collection[int]]) -> Iterator[tuple[int, ...]]:
    known: set[int] = set()
    for image in range(len(links)):
        if image in known:
            continue
        group, waiting = {image}, [image]
        while waiting:
            found = set(links[waiting.pop()]) - group
            group |= found
            waiting += found
        known |= group
        if len(group) > 1:
            yield tuple(sorted(group))


def map_images(
    keys: Sequence[str], features: Features, neighbours: Neighbours, labels: Mapping[str, str]
) -> tuple[list[MapRow], list[tuple[str, ...]], tuple[float, float]]:
    """Return the rows of the map, the groups of duplicates, and what the two axes explain.

    Args:
        keys: the keys of the images.
        features: their features, (images, C).
        neighbours: their nearest images.
        labels: the labels, by image key; images may lack one.

    Raises:
        RequestError: the features are constant, or there are fewer than two of them.
    """
    components = find_components(split_rows(features), 2)
    places = components.project(features)
    scores = neighbours.distances.mean(1)
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    groups = neighbours.duplicates
    number_of = {image: number for number, group in enumerate(groups, 1) for image in group}
    rows = [
        MapRow(
            image=keys[image],
            label=labels.get(keys[image], ""),
            x=float(places[image, 0]),
            y=float(places[image, 1]),
            rank=int(ranks[image]),
            outlier_score=float(scores[image]),
            nearest=keys[neighbours.places[image, 0]],
            distance=float(neighbours.distances[image, 0]),
            group=number_of.get(int(image)),
        )
        for image in order
    ]
    one, two = components.explained
    named = [tuple(keys[image] for image in group) for group in groups]
    return rows, named, (float(one), float(two))


def list_neighbours(keys: Sequence[str], neighbours: Neighbours) -> Iterator[NeighbourRow]:
    """Yield the nearest images of each image, in the order of ``keys``."""
    for key, places, distances in zip(keys, neighbours.places, neighbours.distances, strict=True):
        for rank, (place, distance) in enumerate(zip(places, distances, strict=True), 1):
            yield NeighbourRow(key, rank, keys[place], float(distance))
