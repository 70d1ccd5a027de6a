"""Compute the answers of ``hookcli places`` for a layer: components, similar places or matches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from hookcli.analysis.components import Components, find_components
from hookcli.analysis.images import middle_of
from hookcli.errors import RequestError
from hookcli.outside.documents import AtLeastOne, Rows, Share, Whole, keywords
from hookcli.outside.escape import reversible
from hookcli.outside.urls import choose, to_local
from hookcli.reading.run_files import LocalFiles
from hookcli.records.analysis import AnalysisDocument, Cosine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features, Places, SavedCall
    from hookcli.analysis.images import Geometry, Pixel

    Floats: TypeAlias = NDArray[np.float64]

BASIS = "basis.safetensors"  # the file of bases in the folder of an analysis
REACH = 2.0  # standard deviations of a component from the middle to the end of its colours
_COMPONENTS = 3  # red, green and blue
_BINS, _REACH_OF_BINS = 256, 4.0  # of the histogram that separates foreground and background
_MATCHED_AT_ONCE = 1 << 22  # pairs of places: 32 MB of similarities
MARKS = 12  # matches that are marked on pictures
_LAYERS = "layers"  # the only metadata key of a file with bases
_ARRAYS = ("mean", "axes", "spread", "explained")


@dataclass(frozen=True, slots=True)
class PlacesRow:
    """What ``hookcli places`` found for one layer and image; places are tokens or map pixels.

    Attributes:
        layer: the id of the layer's call, such as ``layer1.0.relu#1``.
        image: the image's key, its unique name in the run.
        rows: the number of rows of places.
        columns: the number of places in a row.
        x: the x coordinate, from 0 at the left edge, of a pixel in the place that is most similar
            to the place at ``point``, or that matches it; null without a point, or if unknown.
        y: the y coordinate of this pixel, from 0 at the upper edge; null when ``x`` is null.
        foreground: the share of places in the foreground; null if no foreground was separated.
        similarity: the cosine of the features at ``point`` and at this pixel; for matches without a
            point, the mean over all matched places; null for components.
        matched: how many places were matched with one in the other image; null for other questions.
        mutual: how many of these places are also the most similar place to their match; null for
            other questions.
    """

    layer: str
    image: str
    rows: AtLeastOne
    columns: AtLeastOne
    x: float | None = None
    y: float | None = None
    foreground: Share | None = None
    similarity: Cosine | None = None
    matched: Whole | None = None
    mutual: Whole | None = None


@dataclass(frozen=True, slots=True)
class LayerPlaces:
    """Facts about the places of one layer in all images.

    Attributes:
        layer: the id of the layer's call, such as ``layer1.0.relu#1``.
        features: the number of features (channels) of a place.
        places: the number of places, added up over all images.
        prefix: how many tokens per image are left out, since they cover no part of the image.
        explained: the share of the variance along each component; empty unless ``components`` were
            asked for.
    """

    layer: str
    features: AtLeastOne
    places: Whole
    prefix: Whole
    explained: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesDocument(AnalysisDocument):
    """The output of ``hookcli places --format json``.

    Attributes:
        question: ``components``, ``similarity`` or ``matches``.
        image: the key of the image with ``point``, or to be matched; empty for components.
        other: the key of the image in which matches were found; empty for other questions.
        point: the pixel (x, y) from the upper left corner that the user chose; null without one.
        layers: one row for each layer.
        left_out: the ids of the calls that have no places; empty if the user chose the layers.
        images: one row for each layer and image.
    """

    question: Annotated[str, keywords(enum=["components", "similarity", "matches"])]
    image: str
    other: str
    point: tuple[int, int] | None
    layers: tuple[LayerPlaces, ...]
    left_out: tuple[str, ...]
    images: Rows[PlacesRow]


@dataclass(frozen=True, slots=True)
class Foreground:
    components: Components
    threshold: float
    is_above: bool

    def has(self, features: Features) -> NDArray[np.bool_]:
        first = self.components.project(features)[:, 0]
        return first > self.threshold if self.is_above else first <= self.threshold


@dataclass(frozen=True, slots=True)
class Basis:
    components: Components  # three, of all places or of the foreground; shown as RGB
    foreground: Foreground | None = None


@dataclass(frozen=True, slots=True)
class Matches:
    """The most similar place in another image for each of P places of an image, in arrays (P,)."""

    places: NDArray[np.int64]
    similarity: Floats
    is_mutual: NDArray[np.bool_]  # whether the match's own most similar place is the place itself


def find_basis(call: SavedCall, *, foreground: bool = False) -> Basis:
    # The foreground is the side of a threshold of the first component that is rarer at the edges.
    components = _find(call, lambda places: places.values)
    if not foreground:
        return Basis(components)
    front = _find_foreground(call, components)
    return Basis(_find(call, lambda places: places.values[front.has(places.values)]), front)


def _find(call: SavedCall, take: Callable[[Places], Features]) -> Components:
    try:
        return find_components(map(take, call.read_places()), _COMPONENTS)
    except RequestError as error:
        if repr(call.call_id) in error.message:
            raise
        raise RequestError(f"{call.call_id!r}: {error.message}", error.hint) from error


def _find_foreground(call: SavedCall, components: Components) -> Foreground:
    """Find the threshold of the first component that separates foreground and background best."""
    # Otsu 1979, A threshold selection method from gray-level histograms
    limit = _REACH_OF_BINS * float(components.spread[0])
    inside, border = np.zeros(_BINS, np.int64), np.zeros(_BINS, np.int64)
    for places in call.read_places():
        first = components.project(places.values)[:, 0].clip(-limit, limit)
        edge = np.ones(places.grid, np.bool_)
        edge[1:-1, 1:-1] = False
        border += np.histogram(first[edge.ravel()], _BINS, (-limit, limit))[0]
        inside += np.histogram(first, _BINS, (-limit, limit))[0]
    weights = inside.cumsum()
    centers = np.linspace(-limit, limit, 2 * _BINS + 1)[1::2]
    sums = (inside * centers).cumsum()
    total, mean = weights[-1], sums[-1] / weights[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        between = np.square(mean * weights - sums) / (weights * (total - weights))
    cut = int(np.nan_to_num(between, nan=0.0, posinf=0.0)[:-1].argmax())
    threshold = -limit + (cut + 1) * 2 * limit / _BINS
    below, edge_below = weights[cut] / total, border[: cut + 1].sum() / border.sum()
    return Foreground(components, threshold, is_above=bool(edge_below >= below))


def colour_places(basis: Basis, features: Features) -> tuple[NDArray[np.uint8], Floats]:
    """Return an RGB colour (P, 3) and coordinates (P, 3) for each place in ``features`` (P, C)."""
    # A component is half bright at its mean, and dark or bright at two standard deviations. Places
    # in the background are black, and their coordinates are NaN.
    coordinates = basis.components.project(features)
    spread = np.where(basis.components.spread > 0, basis.components.spread, 1)
    shades = (0.5 + coordinates / (2 * REACH * spread)).clip(0, 1)
    colours = (shades * 255).round().astype(np.uint8)
    if basis.foreground is not None:
        behind = ~basis.foreground.has(features)
        colours[behind] = 0
        coordinates[behind] = np.nan
    return colours, coordinates


def compare_places(place: Features | Floats, features: Features | Floats) -> Floats:
    """Return the cosine of ``place`` (C,) with each row of ``features`` (P, C); 0 for norm 0."""
    cosines: Floats = _normalize(features) @ _normalize(place[None])[0]
    return cosines.clip(-1, 1)


def match_places(a: Features, b: Features) -> Matches:
    one, two = _normalize(a), _normalize(b)
    forward, backward = np.empty(len(one), np.int64), np.empty(len(two), np.int64)
    best, best_back = np.empty(len(one)), np.full(len(two), -np.inf)
    step = max(1, _MATCHED_AT_ONCE // len(two))
    for start in range(0, len(one), step):
        products = one[start : start + step] @ two.T
        rows = slice(start, start + len(products))
        forward[rows] = products.argmax(1)
        best[rows] = products.max(1)
        larger = products.max(0) > best_back
        backward[larger] = start + products.argmax(0)[larger]
        best_back[larger] = products.max(0)[larger]
    return Matches(forward, best.clip(-1, 1), backward[forward] == np.arange(len(one)))


def _normalize(features: Features | Floats) -> Floats:
    lengths = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


@dataclass(frozen=True, slots=True)
class Answered:
    places: Places
    row: PlacesRow
    columns: Mapping[str, NDArray[np.generic]]  # of the table of places, (P,) each
    kept: NDArray[np.bool_] | None = None  # the places that count; None for all
    colours: NDArray[np.uint8] | None = None  # (P, 3)
    values: Floats | None = None  # (P,); None for colours, or if there is none
    marks: tuple[tuple[float, float], ...] = ()  # middles of places, in shares of width and height


def answer_components(call: SavedCall, basis: Basis) -> Iterator[Answered]:
    for places in call.read_places():
        colours, coordinates = colour_places(basis, places.values)
        share = None if basis.foreground is None else float(np.isfinite(coordinates[:, 0]).mean())
        columns = {f"component_{n + 1}": coordinates[:, n] for n in range(_COMPONENTS)}
        row = PlacesRow(call.call_id, places.key, *places.grid, foreground=share)
        yield Answered(places, row, columns, colours=colours)


def answer_similarity(
    call: SavedCall, image: str, point: tuple[int, int], geometry: Mapping[str, Geometry]
) -> Iterator[Answered]:
    start = read_image(call, image)
    place = geometry[image].find_place(point, start.grid)
    for places in call.read_places():
        values = compare_places(start.values[place], places.values)
        others = values.copy()
        if places.key == image:
            others[place] = -np.inf  # the place itself is no answer
        best = int(others.argmax())
        pixel = geometry[places.key].find_pixel(best, places.grid)
        similarity = float(values[best])
        row = PlacesRow(call.call_id, places.key, *places.grid, *pixel, similarity=similarity)
        marks = (middle_of(place if places.key == image else best, places.grid),)
        yield Answered(places, row, {"similarity": values}, values=values, marks=marks)


def answer_matches(
    call: SavedCall,
    images: tuple[str, str],
    point: tuple[int, int] | None,
    geometry: Mapping[str, Geometry],
    *,
    mutual: bool = False,
) -> tuple[Answered, Answered]:
    one, two = (read_image(call, key) for key in images)
    matches = match_places(one.values, two.values)
    kept = matches.is_mutual if mutual else np.ones(len(one.values), np.bool_)
    first, second = (geometry[key] for key in images)
    pixel: Pixel = (None, None)
    similarity = None
    if point is None:
        chosen = choose_marks(matches, kept, one.grid)
        similarity = float(matches.similarity[kept].mean()) if kept.any() else None
    else:
        start = first.find_place(point, one.grid)
        chosen = [start]
        if kept[start]:
            pixel = second.find_pixel(int(matches.places[start]), two.grid)
            similarity = float(matches.similarity[start])
    row = PlacesRow(
        call.call_id,
        images[0],
        *one.grid,
        *pixel,
        similarity=similarity,
        matched=int(kept.sum()),
        mutual=int(matches.is_mutual.sum()),
    )
    located = second.locate(two.grid).items()
    columns = {f"match_{name}": column[matches.places] for name, column in located}
    columns |= {"similarity": matches.similarity, "mutual": matches.is_mutual}
    values = np.where(kept, matches.similarity, np.nan)
    marks = tuple(middle_of(place, one.grid) for place in chosen)
    back = tuple(middle_of(int(matches.places[place]), two.grid) for place in chosen if kept[place])
    return (
        Answered(one, row, columns, kept, values=values, marks=marks),
        Answered(two, PlacesRow(call.call_id, images[1], *two.grid), {}, marks=back),
    )


def choose_marks(matches: Matches, kept: NDArray[np.bool_], grid: tuple[int, int]) -> list[int]:
    apart = max(grid) / 5
    order = np.lexsort((-matches.similarity, ~matches.is_mutual))
    chosen: list[int] = []
    for place in order:
        here = np.array(divmod(int(place), grid[1]))
        far = all(np.hypot(*(here - divmod(other, grid[1]))) >= apart for other in chosen)
        if kept[place] and far:
            chosen.append(int(place))
        if len(chosen) == MARKS:
            break
    return chosen


def read_image(call: SavedCall, key: str) -> Places:
    for places in call.read_places(key):
        return places
    raise RequestError(f"{call.call_id!r} has no tensor of {key!r}", "choose other `layers`")


def write_bases(bases: Mapping[str, Basis]) -> bytes:
    arrays: dict[str, NDArray[np.float64]] = {}
    for number, basis in enumerate(bases.values()):
        parts = {"": basis.components}
        if basis.foreground is not None:
            parts["front."] = basis.foreground.components
            sign = 1.0 if basis.foreground.is_above else -1.0
            arrays[f"{number}.front"] = np.array([basis.foreground.threshold, sign])
        for prefix, components in parts.items():
            for name in _ARRAYS:
                arrays[f"{number}.{prefix}{name}"] = np.ascontiguousarray(getattr(components, name))
    return save(arrays, {_LAYERS: json.dumps([reversible(call_id) for call_id in bases])})


def read_bases(name: str, *, foreground: bool = False) -> dict[str, Basis]:
    if choose(name, local=False, remote=True):
        what = f"{name!r} is a URL, and a basis must be on this machine"
        raise RequestError(what, "copy the folder")
    folder = Path(to_local(name))
    file = folder / BASIS
    try:
        data = LocalFiles(folder).read(BASIS)
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        layers = [*map(str, json.loads(header["__metadata__"][_LAYERS]))]
        bases = {layer: _take_basis(arrays, number) for number, layer in enumerate(layers)}
    except OSError as error:
        what = f"cannot read {str(file)!r}: {error.strerror or error}"
        if isinstance(error, FileNotFoundError):
            what = f"{str(folder)!r} has no basis of components"
        raise RequestError(what, "name the folder of an analysis with `pca`") from error
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{str(file)!r} is damaged: {error}", "make it again") from error
    if foreground and any(basis.foreground is None for basis in bases.values()):
        what = f"the components in {name!r} are those of all places"
        raise RequestError(what, "leave out `foreground`, or make them again with it")
    return bases


def choose_basis(bases: Mapping[str, Basis], call_id: str, features: int) -> Basis:
    basis = bases.get(reversible(call_id))
    if basis is None:
        raise RequestError(f"there is no basis of {call_id!r}", f"there are: {', '.join(bases)}")
    width = len(basis.components.mean)
    if width != features:
        what = f"the basis of {call_id!r} has {width} features, and the layer {features}"
        raise RequestError(what, "use a basis of the same layer and model")
    return basis


def _take_basis(arrays: Mapping[str, NDArray[np.float64]], number: int) -> Basis:
    components, front = _take(arrays, f"{number}."), None
    if f"{number}.front" in arrays:
        threshold, sign = map(float, arrays[f"{number}.front"])
        front = Foreground(_take(arrays, f"{number}.front."), threshold, is_above=sign > 0)
    return Basis(components, front)


def _take(arrays: Mapping[str, NDArray[np.float64]], prefix: str) -> Components:
    found = [arrays[f"{prefix}{name}"] for name in _ARRAYS]
    width = found[0].size
    shapes = [(width,), (_COMPONENTS, width), (_COMPONENTS,), (_COMPONENTS,)]
    if [array.shape for array in found] != shapes:
        raise ValueError("its arrays do not fit each other")
    if not all(array.dtype == np.float64 and np.isfinite(array).all() for array in found):
        raise ValueError("its arrays are not finite numbers in double precision")
    return Components(*found)
