"""The command ``hookcli places``."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias
from urllib.parse import quote

import typer

from hookcli.cli.analysis import AnalysisOptions, open_analysis
from hookcli.cli.option_groups import command
from hookcli.cli.run_or_model import RunOrModel
from hookcli.config import SaveStyle
from hookcli.errors import RequestError
from hookcli.outside.escape import for_page, reversible
from hookcli.outside.flags import Flag
from hookcli.outside.urls import choose, to_local
from hookcli.records.text import count, figure_text
from hookcli.store.places.names import PAGE
from hookcli.verbs.outcome import Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hookcli.analysis.features import Features, SavedCall
    from hookcli.analysis.folder import AnalysisFolder
    from hookcli.analysis.images import Geometry
    from hookcli.analysis.parquet import TableWriter
    from hookcli.analysis.places import Answered, Basis, LayerPlaces, PlacesDocument, PlacesRow
    from hookcli.cli.analysis import Analysis
    from hookcli.records.analysis import ImagePictures
    from hookcli.records.images import ImageResult
    from hookcli.render.draw.panels import Panel

Question: TypeAlias = Literal["components", "similarity", "matches"]

_TABLE, _PICTURES = "places.parquet", "pictures"
_SHOWN = 20  # rows of the table on the terminal
_DRAWN = 200  # images with pictures, at most
_MOST_DRAWN = 2_000_000  # places on pictures and on the page
_MOST_EMBEDDED = 12_000_000  # bytes of features on the page
_MOST_PLACES = 4096  # of an image whose features are on the page
_RAMP = 15  # steps of the colours of similarity on the page
_MEMORY = 60_000_000  # bytes of blocks, pictures and the page: measured with 20,000 images
_NOTED = 4  # layers whose components a picture describes
_TITLES = {
    "components": "Components of the places of {}",
    "similarity": "Similar places in {}",
    "matches": "Matching places in {}",
}
_QUESTIONS: dict[str, Question] = {
    "pca": "components",
    "similar": "similarity",
    "correspond": "matches",
}


def _read_point(text: str, option: str) -> tuple[int, int]:
    with contextlib.suppress(ValueError):
        x, y = map(int, text.split(","))
        return x, y
    raise RequestError(
        f"{option} cannot read {text!r}", "write X,Y in pixels of the image: 220,180"
    )


@dataclass(frozen=True, slots=True)
class PlacesRequest:
    """Analysis: the question. Without one, it is --pca.

    Attributes:
        similar: X and Y in pixels of the image, from the upper left corner.
        correspond: The key, the path or the file name of an image of the run.
        at: X and Y in pixels of the image, from the upper left corner.
        image: The key, the path or the file name of an image of the run.
    """

    pca: Annotated[
        bool, Flag("--pca", "Show the first three components as red, green and blue.")
    ] = False
    foreground: Annotated[
        bool, Flag("--foreground", "With --pca: only places in front, by the first component.")
    ] = False
    basis: Annotated[
        str | None, Flag("--basis DIR", "With --pca: use the components of another analysis.")
    ] = None
    similar: Annotated[
        tuple[int, int] | None,
        Flag(
            "--similar X,Y",
            "Show how similar every place is to the place at this pixel.",
            read=_read_point,
        ),
    ] = None
    correspond: Annotated[
        str | None, Flag("--correspond IMAGE", "Match the places of --image with those of IMAGE.")
    ] = None
    at: Annotated[
        tuple[int, int] | None,
        Flag("--at X,Y", "With --correspond: the match of this pixel.", read=_read_point),
    ] = None
    mutual: Annotated[
        bool, Flag("--mutual", "With --correspond: only places that choose each other.")
    ] = False
    image: Annotated[
        str | None,
        Flag("--image IMAGE", "The image of --similar and --correspond.  [default: the first]"),
    ] = None

    @property
    def question(self) -> Question:
        """What is asked of the places."""
        asked = {"pca": self.pca, "similar": self.similar, "correspond": self.correspond}
        names = [name for name, value in asked.items() if value]
        if len(names) > 1:
            one, two = names[:2]
            raise RequestError(f"`{one}` and `{two}` are two questions", "ask one at a time")
        asked_name = names[0] if names else "pca"
        owners = {"foreground": "pca", "basis": "pca", "at": "correspond", "mutual": "correspond"}
        for name, owner in owners.items():
            if getattr(self, name) and owner != asked_name:
                raise RequestError(
                    f"`{name}` belongs to `{owner}`", f"add `{owner}`, or leave it out"
                )
        if self.image is not None and asked_name == "pca":
            raise RequestError(
                "`image` belongs to `similar` and `correspond`", "leave it out, or add one of them"
            )
        return _QUESTIONS[asked_name]


@command
def places(
    source: RunOrModel,
    style: PlacesRequest,
    output: AnalysisOptions,
    context: typer.Context,
) -> int:
    """Colour the places of layers by their components, or find similar and matching places.

    Places are the tokens of an image, or the pixels of a layer's maps. With a run, hookcli shows
    all layers that have places, or those of --layers.

    Examples:
        hookcli places resnet18 cat.jpg dog.jpg --layers layer3 --pca
        hookcli places hookcli-runs/vit --similar 220,180 --image cat.jpg
        hookcli places hookcli-runs/vit --correspond dog.jpg --at 220,180
    """
    from hookcli.analysis.places import read_bases

    _ = style.question  # raises an error for options that do not belong together
    bases = None
    if style.basis is not None:
        if choose(style.basis, local=False, remote=True):
            raise RequestError(
                f"{style.basis!r} is a URL, and a basis must be on this machine", "copy the folder"
            )
        bases = read_bases(Path(to_local(style.basis)))
    names = [name for name in (style.image, style.correspond) if name is not None]
    with open_analysis(source, style, output, context, SaveStyle(), names=names) as analysis:
        _show_places(analysis, style, bases)
    return analysis.exit_code


def _show_places(
    analysis: Analysis, style: PlacesRequest, bases: Mapping[str, Basis] | None
) -> None:
    from hookcli.analysis.parquet import TableWriter
    from hookcli.analysis.places import PlacesDocument
    from hookcli.cli.output.progress import Bar as Progress

    calls, left_out = _choose(analysis)
    asked = _Asked.of(analysis, style, bases)
    drawn = asked.choose_drawn(calls, analysis.runs[0].images)
    images = 2 if asked.other else len(analysis.runs[0].images)
    squared = 0
    if style.question == "components" and bases is None:
        squared = max(min(call.features, call.places * images) for call in calls) ** 2
    analysis.say_plan(
        f"{count(len(calls), 'layer')}, {count(images, 'image')}, {style.question}",
        _MEMORY + 24 * squared,
    )
    layers: list[_Layer] = []
    rows: list[PlacesRow] = []
    bar = Progress(
        asked.passes * len(calls) * images,
        "images read",
        is_shown=bool(asked.passes) and not analysis.output.quiet,
    )
    with analysis.folder() as folder:
        with folder.open(_TABLE) as stream, TableWriter(stream) as table, bar as progress:
            for call in calls:
                watched = replace(call, on_read=lambda n: progress.chunk_done(progress.done + n, 0))
                layer = _Layer(asked, watched, drawn, _MOST_EMBEDDED // len(calls))
                rows += layer.answer(table)
                layers.append(layer)
        document = PlacesDocument(
            **analysis.common,
            question=style.question,
            image=asked.image,
            other=asked.other,
            point=asked.point,
            layers=tuple(layer.facts for layer in layers),
            left_out=left_out,
            images=tuple(rows),
        )
        _write(analysis, layers, document, folder)
    shown = document.images[:_SHOWN] if analysis.output.is_brief else document.images
    analysis.print(_look(), shown, document, _caption(analysis, document))


def _caption(analysis: Analysis, document: PlacesDocument) -> Iterator[str]:
    if document.point is not None and document.other:
        for row in document.images:
            if row.similarity is None:
                x, y = document.point
                yield f"{row.layer}: the place at {x},{y} has no mutual match"
    if len(document.images) > _SHOWN:
        yield f"the first {_SHOWN} of {len(document.images):,} rows; all of them: --format csv"
    for layer in document.layers:
        parts = [f"{layer.places:,} places of {count(layer.features, 'feature')}"]
        if layer.explained:
            shares = ", ".join(f"{share:.1%}" for share in layer.explained)
            parts.append(f"the three components have {shares} of the variance")
        if layer.prefix:
            parts.append(f"{count(layer.prefix, 'prefix token')} left out")
        yield f"{layer.layer}: {'; '.join(parts)}"
    if document.left_out:
        yield f"left out, since they have no places: {', '.join(document.left_out)}"
    yield f"every place: {analysis.place / _TABLE}"


def _choose(analysis: Analysis) -> tuple[Sequence[SavedCall], tuple[str, ...]]:
    """Return the layers to show, and the ids of those left out because they have no places."""
    calls = analysis.choose_calls(analysis.runs[0])
    chosen = [call for call in calls if call.places]
    if analysis.source.is_run and analysis.source.forms:
        return calls, ()  # a layer without places is an error that names the layer
    if not chosen:
        next(calls[0].read_places())  # raises the error
    return chosen, tuple(call.call_id for call in calls if not call.places)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the user asks of every layer."""

    style: PlacesRequest
    image: str  # a key; empty for components
    other: str  # the key of the matched image; empty for other questions
    point: tuple[int, int] | None
    geometry: Mapping[str, Geometry]
    bases: Mapping[str, Basis] | None  # of another analysis, by layer; None if the user named none

    @classmethod
    def of(
        cls, analysis: Analysis, style: PlacesRequest, bases: Mapping[str, Basis] | None
    ) -> _Asked:
        from hookcli.analysis.images import find_image, list_files, list_geometry

        (run,) = analysis.runs
        files = list_files(run)
        image = other = ""
        if style.question != "components":
            image = run.images[0] if style.image is None else find_image(files, style.image)
        if style.correspond is not None:
            other = find_image(files, style.correspond)
            if other == image:
                raise RequestError(
                    f"`correspond` is the image {image!r} itself",
                    "name another image, or choose the first one with `image`",
                )
        return cls(style, image, other, style.similar or style.at, list_geometry(run), bases)

    @property
    def passes(self) -> int:
        """How often the tensors of all images are read."""
        if self.style.question == "components":
            return 1 if self.bases is not None else 4 if self.style.foreground else 2
        return 0 if self.other else 1

    def choose_drawn(self, calls: Sequence[SavedCall], images: Sequence[str]) -> tuple[str, ...]:
        """Return the keys of the images with pictures, that of the question first."""
        if self.other:
            return self.image, self.other
        places = sum(call.places for call in calls)
        number = min(_DRAWN, max(1, _MOST_DRAWN // max(1, places)))
        return tuple(dict.fromkeys([self.image] * bool(self.image) + list(images)))[:number]

    def open_basis(self, call: SavedCall) -> Basis | None:
        """Find the components, or take those of another analysis; None for other questions."""
        from hookcli.analysis.places import choose_basis, find_basis, read_image

        if self.style.question != "components":
            return None
        if self.bases is None:
            return find_basis(call, foreground=self.style.foreground)
        features = read_image(call, call.images[0]).values.shape[1]
        basis = choose_basis(self.bases, call.call_id, features)
        if self.style.foreground and basis.foreground is None:
            raise RequestError(
                f"the components in {self.style.basis!r} are those of all places",
                "leave out `foreground`, or make them again with it",
            )
        return basis

    def answer(self, call: SavedCall, basis: Basis | None) -> Iterator[Answered]:
        """``basis`` is None unless the question is for components."""
        from hookcli.analysis.places import (
            answer_components,
            answer_matches,
            answer_similarity,
        )

        if basis is not None:
            yield from answer_components(call, basis)
        elif self.other:
            pair = (self.image, self.other)
            mutual = self.style.mutual
            yield from answer_matches(call, pair, self.point, self.geometry, mutual=mutual)
        elif self.point is not None:
            yield from answer_similarity(call, self.image, self.point, self.geometry)


@dataclass(slots=True)
class _Layer:
    """The answers for one layer, as far as pictures and the page need them."""

    asked: _Asked
    call: SavedCall
    drawn: Sequence[str]  # the keys of the images with pictures, that of the question first
    room: int  # the bytes of features that the page has room for
    basis: Basis | None = None  # None for other questions than components
    places: int = 0  # of all images
    prefix: int = 0  # the tokens of an image that are left out
    features: int = 0  # of a place
    # of images with pictures, by image key, without features
    answers: dict[str, Answered] = field(default_factory=dict)
    # the features of each image's places, for the page
    embedded: dict[str, dict[str, object]] = field(default_factory=dict)
    low: float = 1.0  # the smallest value of all images

    @property
    def call_id(self) -> str:
        return self.call.call_id

    @property
    def facts(self) -> LayerPlaces:
        """What all places of the layer have in common."""
        from hookcli.analysis.places import LayerPlaces

        shares = () if self.basis is None else self.basis.components.explained
        explained = tuple(float(share) for share in shares)
        return LayerPlaces(self.call_id, self.features, self.places, self.prefix, explained)

    def answer(self, table: TableWriter) -> Iterator[PlacesRow]:
        """Yield a row for each image, and add its places to the table."""
        self.basis = self.asked.open_basis(self.call)
        for each in self.asked.answer(self.call, self.basis):
            places = each.places
            self.places += len(places.values)
            self.prefix, self.features = places.prefix, places.values.shape[1]
            self._keep(each)
            if each.columns:
                texts = {"layer": reversible(self.call_id), "image": reversible(places.key)}
                columns = self.asked.geometry[places.key].locate(places.grid) | dict(each.columns)
                table.add(texts, {name: column[each.kept] for name, column in columns.items()})
                yield each.row

    def _keep(self, each: Answered) -> None:
        import numpy as np

        places = each.places
        if each.values is not None and np.isfinite(each.values).any():
            self.low = min(self.low, float(np.nanmin(each.values)))
        if places.key not in self.drawn:
            return
        # The image of the question is the one that the page cannot do without.
        is_first = places.key == self.drawn[0]
        needed = places.values.size
        spared = 0 if is_first or self.drawn[0] in self.embedded else needed
        if len(places.values) <= _MOST_PLACES and needed + spared <= self.room:
            self.embedded[places.key] = _describe_features(places.values)
            self.room -= needed
        empty = replace(places, values=places.values[:0])
        self.answers[places.key] = replace(each, columns={}, places=empty)


def _describe_features(features: Features) -> dict[str, object]:
    from hookcli.analysis.places import quantize

    levels, scales = quantize(features)
    width = features.shape[1]
    return {"width": width, "levels": _pack(levels), "scales": _pack(scales.astype("<f4"))}


def _pack(array: NDArray[np.generic]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _look() -> Look[PlacesRow]:
    from hookcli.analysis.places import PlacesRow

    return Look(
        kind=PlacesRow,
        columns={
            "layer": lambda row: row.layer,
            "image": lambda row: row.image,
            "places": lambda row: f"{row.rows}x{row.columns}",
            "foreground": lambda row: "" if row.foreground is None else f"{row.foreground:.1%}",
            "matched": lambda row: "" if row.matched is None else f"{row.matched:,}",
            "mutual": lambda row: "" if row.mutual is None else f"{row.mutual:,}",
            "similarity": lambda row: figure_text(row.similarity),
            "at": lambda row: "" if row.x is None else f"{row.x:.0f},{row.y:.0f}",
        },
        words=("layer", "image", "at"),
        fold=("layer", "image"),
        drop=("foreground", "matched", "mutual", "places", "similarity", "at"),
    )


def _write(
    analysis: Analysis, layers: Sequence[_Layer], document: PlacesDocument, folder: AnalysisFolder
) -> None:
    from hookcli.analysis.pictures import copy_pictures
    from hookcli.analysis.places import BASIS, write_bases
    from hookcli.render.report.analysis_page import arrange_images, render_analysis

    bases = {layer.call_id: layer.basis for layer in layers if layer.basis is not None}
    if bases:
        folder.write(BASIS, write_bases(bases))
    keys = list(dict.fromkeys(key for layer in layers for key in layer.answers))
    pictures = copy_pictures(analysis.runs[0], folder, only=set(keys))
    title = _TITLES[document.question].format(analysis.facts[0].model.name)
    files = _write_pictures(analysis, layers, keys, pictures, document, title, folder)
    shown = [image for image in pictures.images if image.key in files]
    kept = replace(pictures, images=tuple(shown))
    total = len({row.image for row in document.images})
    contact = arrange_images(kept, [], {}, total, "the first ones")
    values = {
        "contact": contact,
        "data": _make_data(
            layers, shown, [tile["name"] for tile in contact["tiles"]], document, files
        ),
        "tables": (_TABLE, *([BASIS] if bases else [])),
    }
    folder.write(PAGE, render_analysis("places", title, document, values).encode())


def _write_pictures(
    analysis: Analysis,
    layers: Sequence[_Layer],
    keys: Sequence[str],
    pictures: ImagePictures,
    document: PlacesDocument,
    title: str,
    folder: AnalysisFolder,
) -> dict[str, str]:
    """Write a picture of each image, or one of a pair; return the files by image key."""
    from hookcli.render.draw.panels import draw_panels

    seen = {image.key: image.seen for image in pictures.images}
    files: dict[str, str] = {}
    for group in [list(keys)] if document.other else [[key] for key in keys]:
        photos = {key: folder.read(seen[key]) if seen.get(key) else None for key in group}
        panels = list(_list_panels(layers, photos, document))
        heading = [title, *_list_notes(layers, document), "   ".join(group)]
        data = draw_panels(panels, heading, analysis.output.theme)
        file = folder.write(f"{_PICTURES}/{'-'.join(group)}.png", data)
        files |= dict.fromkeys(group, file)
    return files


def _list_notes(layers: Sequence[_Layer], document: PlacesDocument) -> Iterator[str]:
    if document.question == "components":
        yield "the first three components as red, green and blue, the same for all images"
        for layer in layers[:_NOTED]:
            shares = ", ".join(f"{share:.0%}" for share in layer.facts.explained)
            yield f"{layer.call_id}: {shares} of the variance"
    elif document.question == "similarity" and document.point is not None:
        x, y = document.point
        yield f"cosine similarity to the place at {x},{y} of {document.image}; rings: that place,"
        yield "and in other images the most similar one"
    else:
        yield "rings of one number: a place, and its most similar one in the other image"


def _list_panels(
    layers: Sequence[_Layer], photos: Mapping[str, bytes | None], document: PlacesDocument
) -> Iterator[Panel]:
    import numpy as np

    from hookcli.analysis.places import MARKS
    from hookcli.render.draw.panels import (
        Mark,
        Panel,
        choose_color,
        colour_heat,
        draw_map,
        mark_places,
        open_photo,
    )

    opened = {}
    panels = len(photos) * len(layers) + (0 if document.other else 1)
    for key, data in photos.items():
        grid = next(each.answers[key].places.grid for each in layers if key in each.answers)
        opened[key] = open_photo(data, grid, panels)
    if not document.other:
        for key, photo in opened.items():
            yield Panel(photo, key if photos[key] else "no picture in the run")
    for layer in layers:
        for key, photo in opened.items():
            answered = layer.answers.get(key)
            if answered is None:
                continue
            grid = answered.places.grid
            labels = [str(n) if len(answered.marks) > 1 else "" for n in range(1, MARKS + 1)]
            marks = [Mark(at, choose_color(n), labels[n]) for n, at in enumerate(answered.marks)]
            caption = f"{layer.call_id} {grid[0]}x{grid[1]}"
            if document.other:
                yield Panel(mark_places(photo, marks), f"{key} {caption}")
                continue
            if answered.colours is not None:
                colours = answered.colours
            else:
                assert answered.values is not None  # noqa: S101  either of them
                colours = colour_heat(answered.values, layer.low, 1.0)
                caption += f", {layer.low:.2f} to 1"
            drawn = draw_map(np.reshape(colours, (*grid, 3)), photo.size)
            yield Panel(mark_places(drawn, marks), caption)


def _make_data(
    layers: Sequence[_Layer],
    images: Sequence[ImageResult],
    names: Sequence[str],
    document: PlacesDocument,
    files: Mapping[str, str],
) -> dict[str, object]:
    """Return the data of the page's script; ``names`` are the images' names for readers."""
    from hookcli.render.charts.figures import colors_of

    keys = [image.key for image in images]
    scale = colors_of("dark").scale
    return {
        "question": document.question,
        "ramp": [scale[part * (len(scale) - 1) // _RAMP] for part in range(_RAMP + 1)],
        "seen": [quote(image.seen) for image in images],
        "names": [for_page(name) for name in names],
        "pictures": [quote(files[key]) for key in keys],
        "layers": [for_page(layer.call_id) for layer in layers],
        "lows": [round(layer.low, 3) for layer in layers],
        "start": keys.index(document.image) if document.image in keys else 0,
        "maps": [[_describe_map(layer, key) for key in keys] for layer in layers],
    }


def _describe_map(layer: _Layer, key: str) -> dict[str, object] | None:
    answered = layer.answers.get(key)
    if answered is None:
        return None
    rows, columns = answered.places.grid
    features, values = layer.embedded.get(key), answered.values
    return {
        "rows": rows,
        "columns": columns,
        "colours": None if answered.colours is None else _pack(answered.colours),
        "marks": [[round(x, 4), round(y, 4)] for x, y in answered.marks],
        "features": features,
        "asked": None if features or values is None else _pack_shares(values),
    }


def _pack_shares(values: NDArray[np.float64]) -> str:
    """Return values from -1 to 1 as bytes from 1 to 255 for the page's script, and 0 for NaN."""
    import numpy as np

    levels = 1 + np.round(127 * (values.clip(-1, 1) + 1))
    return _pack(np.nan_to_num(levels, nan=0).astype(np.uint8))
