"""Collect the answers of ``hookcli places`` for all images, for its table, pictures and page."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import quote

import numpy as np

from hookcli.analysis.features import find_directions
from hookcli.analysis.images import find_image, list_files
from hookcli.analysis.places import (
    LayerPlaces,
    answer_components,
    answer_matches,
    answer_similarity,
    choose_basis,
    find_basis,
    read_image,
)
from hookcli.errors import RequestError
from hookcli.outside.escape import for_page, reversible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hookcli.analysis.features import Features, SavedCall
    from hookcli.analysis.images import Geometry
    from hookcli.analysis.parquet import TableWriter
    from hookcli.analysis.places import Answered, Basis, PlacesDocument, PlacesRow
    from hookcli.reading.load import Run
    from hookcli.records.images import ImageResult

Question: TypeAlias = Literal["components", "similarity", "matches"]

_DRAWN = 200  # images with pictures, at most
_MOST_DRAWN = 2_000_000  # places on pictures and on the page
_MOST_PLACES = 4096  # of an image whose features are on the page
TITLES = {
    "components": "Components of the places of {}",
    "similarity": "Similar places in {}",
    "matches": "Matching places in {}",
}
_NOTED = 4  # layers whose components a picture describes


@dataclass(slots=True)
class LayerAnswers:
    call_id: str
    drawn: Sequence[str]  # the keys of the images with pictures; that of the question comes first
    room: int  # the bytes of features that the page still has room for
    basis: Basis | None
    rows: list[PlacesRow] = field(default_factory=list)
    # of the images with pictures, by image key: the answers, and what the page's script gets
    maps: dict[str, Answered] = field(default_factory=dict)
    page: dict[str, dict[str, object]] = field(default_factory=dict)
    low: float = 1.0  # the smallest value of all images
    _places: int = 0  # of all images
    _prefix: int = 0
    _features: int = 0

    @property
    def facts(self) -> LayerPlaces:
        explained = () if self.basis is None else tuple(map(float, self.basis.components.explained))
        return LayerPlaces(self.call_id, self._features, self._places, self._prefix, explained)

    def add(self, each: Answered, geometry: Geometry, table: TableWriter) -> None:
        places = each.places
        self._places += len(places.values)
        self._prefix, self._features = places.prefix, places.values.shape[1]
        if each.values is not None and np.isfinite(each.values).any():
            self.low = min(self.low, float(np.nanmin(each.values)))
        if places.key in self.drawn:
            self._keep(each)
        if each.columns:
            self.rows.append(each.row)
            texts = {"layer": reversible(self.call_id), "image": reversible(places.key)}
            columns = geometry.locate(places.grid) | dict(each.columns)
            kept = slice(None) if each.kept is None else each.kept
            table.add(texts, {name: column[kept] for name, column in columns.items()})

    def _keep(self, each: Answered) -> None:
        places, first = each.places, self.drawn[0]
        # The image of the question is the one that the page cannot do without.
        needed = places.values.size
        is_safe = places.key == first or (first in self.page and self.page[first]["features"])
        features = None
        if len(places.values) <= _MOST_PLACES and needed * (2 - bool(is_safe)) <= self.room:
            features = _pack_features(places.values)
            self.room -= needed
        self.page[places.key] = {
            "rows": places.grid[0],
            "columns": places.grid[1],
            "colours": None if each.colours is None else _pack(each.colours),
            "marks": [[round(x, 4), round(y, 4)] for x, y in each.marks],
            "features": features,
            "asked": None if features or each.values is None else _pack_shares(each.values),
        }
        empty = replace(places, values=places.values[:0])
        self.maps[places.key] = replace(each, columns={}, places=empty)


@dataclass(frozen=True, slots=True)
class PlacesQuestion:
    kind: Question
    image: str  # the key of the image that the question starts from; empty for components
    other: str  # the key of the matched image; empty for other questions
    point: tuple[int, int] | None  # a pixel; None for components, or to mark some good matches
    geometry: Mapping[str, Geometry]
    bases: Mapping[str, Basis] | None  # components of another analysis; None to find them
    foreground: bool
    mutual: bool

    @property
    def passes(self) -> int:
        """How often an answer needs the tensors of all images; 0 if it needs only two images."""
        if self.kind == "components":
            return 1 if self.bases is not None else 4 if self.foreground else 2
        return 0 if self.other else 1

    def choose_drawn(self, calls: Sequence[SavedCall], images: Sequence[str]) -> tuple[str, ...]:
        if self.other:
            return self.image, self.other
        places = sum(call.places for call in calls)
        number = min(_DRAWN, max(1, _MOST_DRAWN // max(1, places)))
        return tuple(dict.fromkeys([self.image] * bool(self.image) + list(images)))[:number]

    def answer(
        self, call: SavedCall, drawn: Sequence[str], room: int, table: TableWriter
    ) -> LayerAnswers:
        layer = LayerAnswers(call.call_id, drawn, room, self._open_basis(call))
        for each in self._answer(call, layer.basis):
            layer.add(each, self.geometry[each.places.key], table)
        return layer

    def _open_basis(self, call: SavedCall) -> Basis | None:
        if self.kind != "components":
            return None
        if self.bases is None:
            return find_basis(call, foreground=self.foreground)
        features = read_image(call, call.images[0]).values.shape[1]
        return choose_basis(self.bases, call.call_id, features)

    def _answer(self, call: SavedCall, basis: Basis | None) -> Iterable[Answered]:
        if basis is not None:
            return answer_components(call, basis)
        if self.other:
            pair = (self.image, self.other)
            return answer_matches(call, pair, self.point, self.geometry, mutual=self.mutual)
        assert self.point is not None  # noqa: S101  the place to which others are similar
        return answer_similarity(call, self.image, self.point, self.geometry)


def find_images(run: Run, kind: Question, image: str | None, other: str | None) -> tuple[str, str]:
    files = list_files(run)
    first = second = ""
    if kind != "components":
        first = run.images[0] if image is None else find_image(files, image)
    if other is not None:
        second = find_image(files, other)
        if second == first:
            what = f"`correspond` is the image {first!r} itself"
            raise RequestError(what, "name another image, or choose the first one with `image`")
    return first, second


def list_notes(document: PlacesDocument) -> Iterator[str]:
    if document.question == "components":
        yield "the first three components as red, green and blue, the same for all images"
        for layer in document.layers[:_NOTED]:
            shares = ", ".join(f"{share:.0%}" for share in layer.explained)
            yield f"{layer.layer}: {shares} of the variance"
    elif document.question == "similarity" and document.point is not None:
        x, y = document.point
        yield f"cosine similarity to the place at {x},{y} of {document.image}; rings: that place,"
        yield "and in other images the most similar one"
    else:
        yield "rings of one number: a place, and its most similar one in the other image"


def make_data(
    document: PlacesDocument,
    layers: Sequence[LayerAnswers],
    images: Sequence[ImageResult],
    names: Sequence[str],
    pictures: Mapping[str, str],
    ramp: Sequence[str],
) -> dict[str, object]:
    keys = [image.key for image in images]
    return {
        "question": document.question,
        "ramp": ramp,
        "seen": [quote(image.seen) for image in images],
        "names": [for_page(name) for name in names],
        "pictures": [quote(pictures[key]) for key in keys],
        "layers": [for_page(layer.call_id) for layer in layers],
        "lows": [round(layer.low, 3) for layer in layers],
        "start": keys.index(document.image) if document.image in keys else 0,
        "maps": [[layer.page.get(key) for key in keys] for layer in layers],
    }


def _pack_features(features: Features) -> dict[str, object]:
    """Scale rows (P, C) to the norm 1, and encode each row for the page as int8 with a scale."""
    # The dot product of two such rows, times both scales, is their cosine within about 0.01.
    directions = find_directions(features)
    scales = np.abs(directions).max(1) / 127
    levels = np.round(directions / np.where(scales > 0, scales, 1)[:, None])
    packed = {"levels": _pack(levels.astype(np.int8)), "scales": _pack(scales.astype("<f4"))}
    return {"width": features.shape[1], **packed}


def _pack_shares(values: NDArray[np.float64]) -> str:
    """Encode values from -1 to 1 as bytes from 1 to 255, and NaN as 0, in base64 for the page."""
    levels = 1 + np.round(127 * (values.clip(-1, 1) + 1))
    return _pack(np.nan_to_num(levels, nan=0).astype(np.uint8))


def _pack(array: NDArray[np.generic]) -> str:
    return base64.b64encode(array.tobytes()).decode()
