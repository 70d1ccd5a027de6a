"""Map a run's images by their features in one layer; find near duplicates and outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hookcli.analysis.components import find_components, split_rows
from hookcli.analysis.features import find_directions
from hookcli.errors import RequestError
from hookcli.outside.documents import AtLeastOne, Distance, Rows, Whole
from hookcli.records.analysis import AnalysisDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features

LEAST = 3  # images of a map

CLOSER = 0.7
"""The largest distance of a near duplicate, as a share of the distance of the next image.

Measured with the trained EfficientNet-Lite0 on 500 drawn scenes and 20 copies of them, compressed
again (quality 70) or cropped by 5 %: in the last layers, this ratio was 0.2 to 0.7 for copies. For
all but one of the other pairs of images, it was at least 0.73.
"""

NEAR = 0.3
"""The largest distance of a near duplicate, as a share of the median distance of all pairs.

In the same measurement, copies were at most 0.28 times as far as the median. Without this limit, a
few photos that have little in common would have duplicates.
"""

_MOST_ALIKE = 20  # near duplicates that an image may have, unless they are exact copies
_ENOUGH = 10  # with fewer images, the median distance is not typical
_SAME = 1e-6  # a smaller distance is rounding error
_MOST_GROUPED = 2000  # images of a chain of links that are grouped together
_MOST_LINKS = 20_000_000  # pairs of images that the user's distance may link
_SAMPLE = 1000  # images whose distances from each other are typical
_MEMORY = 64  # MiB of distances at a time


@dataclass(frozen=True, slots=True)
class MapRow:
    """Where an image is on the map, and how far it is from other images.

    Attributes:
        image: the image as the user named it: its path below the folder that all images share.
        label: the label of the image; empty without labels.
        x: the coordinate along the first principal component of all images' features.
        y: the coordinate along the second principal component.
        rank: the rank by ``outlier_score``: 1 for the image farthest from its neighbours.
        outlier_score: the mean distance of the image from its nearest neighbours.
        nearest: the name of the nearest image.
        distance: the distance to the nearest image: one minus the cosine of the two images'
            features.
        group: the number, from 1, of the image's group of near duplicates; null if it has none.
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
        image: the image's name, as in ``MapRow``.
        rank: 1 for the nearest image, then 2, and so on.
        neighbour: the name of the other image.
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
        layer: the id of the call (layer) whose features were compared.
        reason: why hookcli chose the layer; empty if the user chose it.
        features: the number of features of an image.
        explained: the share of the variance along each of the two axes of the map.
        duplicates: groups of near duplicates, each with the names of its images.
        duplicate_distance: the largest distance at which two images count as near duplicates.
        crowded: the number of images whose duplicates are not listed, because more than 20 images
            are within ``duplicate_distance``.
        images: one row for each image, the one with the largest outlier score first.
        neighbours: the nearest images of each image, in the order of the run.
    """

    layer: str
    reason: str
    features: Whole
    explained: tuple[float, float]
    duplicates: tuple[tuple[str, ...], ...]
    duplicate_distance: Distance
    crowded: Whole
    images: Rows[MapRow]
    neighbours: tuple[NeighbourRow, ...]


@dataclass(frozen=True, slots=True)
class Neighbours:
    places: NDArray[np.int64]  # positions of the nearest images, (images, N), the nearest first
    distances: NDArray[np.float64]  # (images, N)
    # Groups of near duplicates, in ascending order: any two images are at most ``near`` apart.
    # Unless the user chose ``near``, an image is also much closer to a duplicate than to the next
    # image that is none (``CLOSER``), and of fewer than ten images, only exact copies count.
    duplicates: list[tuple[int, ...]]
    crowded: int  # the number of images that are not judged, as in ``MapDocument``
    near: float


def find_neighbours(features: Features, count: int, near: float | None = None) -> Neighbours:
    """Find the ``count`` nearest images of each image, and the near duplicates among all images.

    The distance of two images is one minus the cosine of their ``features`` (images, C). Near
    duplicates are at most ``near`` apart; if ``near`` is None, hookcli chooses this limit.
    """
    from sklearn import config_context
    from sklearn.neighbors import NearestNeighbors

    if len(features) < LEAST:
        what = f"a map needs at least {LEAST} images, not {len(features)}"
        raise RequestError(what, "run more images")
    directions = find_directions(features)
    is_zero: NDArray[np.bool_] = ~np.any(directions, axis=1)
    if is_zero.all():
        raise RequestError("the features are zero for all images", "choose another of `layers`")
    if is_zero.any():  # they get a direction of their own, at right angles to all others
        directions = np.hstack([directions, is_zero[:, None].astype(np.float32)])
    searched = min(max(count, _MOST_ALIKE + 1), len(directions) - 1)
    sample = directions[:: -(-len(directions) // _SAMPLE)]
    apart = (1 - sample @ sample.T)[np.triu_indices(len(sample), 1)]
    with config_context(working_memory=_MEMORY):
        search = NearestNeighbors(n_neighbors=searched, algorithm="brute").fit(directions)
        distances, nearest = search.kneighbors()
        # half of the squared distance of two vectors of length 1 is one minus their cosine
        distances = distances.astype(np.float64) ** 2 / 2
        if near is None:
            near = NEAR * float(np.median(apart)) if len(directions) >= _ENOUGH else 0
            near, judged = max(_SAME, near), slice(None, _MOST_ALIKE + 1)
            links, crowded = _link(nearest[:, judged], distances[:, judged], near)
        else:
            near, share = max(_SAME, near), float(np.mean(apart <= near))
            if share * len(directions) ** 2 > _MOST_LINKS:
                what = f"{share:.0%} of all pairs of images are at most {near:g} apart"
                raise RequestError(what, "name a smaller distance for duplicates")
            graph = search.radius_neighbors_graph(radius=math.sqrt(2 * near))
            links, crowded = np.stack(graph.nonzero()), 0
    duplicates = _group(links, directions, near)
    return Neighbours(nearest[:, :count], distances[:, :count], duplicates, crowded, near)


def _link(
    nearest: NDArray[np.int64], distances: NDArray[np.float64], near: float
) -> tuple[NDArray[np.int64], int]:
    """Return the pairs of near duplicates, (2, pairs), and the number of crowded images."""
    # Rows of ``nearest`` and ``distances`` (images, N) have the N images nearest to an image. An
    # image in no pair is crowded if all N are at most ``near`` apart, because more may be as near.
    counts = [_count_alike(each, near) for each in distances]
    found = [set(map(int, each[:count])) for each, count in zip(nearest, counts, strict=True)]
    links: list[set[int]] = [set() for _ in found]
    for one, others in enumerate(found):
        for two in others:
            # An image with more copies than are judged does not find all of them.
            if one in found[two] or counts[two] == nearest.shape[1]:
                links[one].add(two)
                links[two].add(one)
    has_more = len(nearest) - 1 > nearest.shape[1]
    crowded = sum(
        has_more and not own and bool(each[-1] <= near)
        for each, own in zip(distances, links, strict=True)
    )
    pairs = [(one, two) for one, others in enumerate(links) for two in others]
    return np.array(pairs, np.int64).reshape(-1, 2).T, crowded


def _count_alike(distances: NDArray[np.float64], near: float) -> int:
    if distances[-1] <= _SAME:
        return len(distances)
    for count in range(len(distances) - 1, 0, -1):
        last, following = distances[count - 1], distances[count]
        if last <= near and last <= max(_SAME, CLOSER * following):
            return count
    return 0


def _group(links: NDArray[np.int64], directions: Features, near: float) -> list[tuple[int, ...]]:
    """Group linked images so that any two images of a group are at most ``near`` apart."""
    # ``links`` is (2, pairs), and ``directions`` (images, C) has norm 1. Images in no group are
    # left out.
    # Only images that a chain of links joins are compared.
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(directions)
    graph = coo_array((np.ones(links.shape[1], np.bool_), links), (count, count))
    chains = connected_components(graph, directed=False)[1]
    order = chains.argsort(kind="stable")
    groups = []
    for chain in np.split(order, np.flatnonzero(np.diff(chains[order])) + 1):
        for start in range(0, len(chain) - 1, _MOST_GROUPED):
            some = chain[start : start + _MOST_GROUPED]
            rows = directions[some].astype(np.float64)
            distances = (1 - rows @ rows.T)[np.triu_indices(len(some), 1)].clip(0)
            numbers = fcluster(linkage(distances, "complete"), near, "distance")
            groups += [tuple(map(int, some[numbers == each])) for each in np.unique(numbers)]
    return sorted(group for group in groups if len(group) > 1)


def map_images(
    names: Sequence[str], features: Features, neighbours: Neighbours, labels: Mapping[str, str]
) -> tuple[list[MapRow], list[tuple[str, ...]], tuple[float, float]]:
    """Return one row per image, the near duplicates, and the share of variance along each axis.

    ``names`` has the images' names in the order of ``features`` (images, C), and ``labels`` has
    labels by name. The near duplicates are groups of names. The axes are two principal components.
    """
    components = find_components(split_rows(features), 2)
    points = components.project(features)
    scores = neighbours.distances.mean(1)
    groups = neighbours.duplicates
    number_of = {image: number for number, group in enumerate(groups, 1) for image in group}
    rows = [
        MapRow(
            image=names[image],
            label=labels.get(names[image], ""),
            x=float(points[image, 0]),
            y=float(points[image, 1]),
            rank=rank,
            outlier_score=float(scores[image]),
            nearest=names[neighbours.places[image, 0]],
            distance=float(neighbours.distances[image, 0]),
            group=number_of.get(int(image)),
        )
        for rank, image in enumerate(np.argsort(-scores, kind="stable"), 1)
    ]
    one, two = components.explained
    named = [tuple(names[image] for image in group) for group in groups]
    return rows, named, (float(one), float(two))


def list_neighbours(names: Sequence[str], neighbours: Neighbours) -> Iterator[NeighbourRow]:
    for name, places, distances in zip(names, neighbours.places, neighbours.distances, strict=True):
        for rank, (index, distance) in enumerate(zip(places, distances, strict=True), 1):
            yield NeighbourRow(name, rank, names[index], float(distance))
