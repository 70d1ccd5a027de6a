"""Define ``hookcli places``, which draws tokens or pixels: its options, table and files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from hookcli.errors import RequestError
from hookcli.outside import parse
from hookcli.outside.flags import Flag
from hookcli.records.text import count, figure_text
from hookcli.verbs.analysis import Analysis, AnalysisOptions, AnalysisOutcome, open_analysis
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import TABLES, verb
from hookcli.verbs.outcome import Look, Table
from hookcli.verbs.runs import RunOrModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hookcli.analysis.features import SavedCall
    from hookcli.analysis.places import Basis, PlacesDocument, PlacesRow
    from hookcli.analysis.places_answers import LayerAnswers, Question
    from hookcli.store.results import ResultFolder

_TABLE, _PICTURES = "places.parquet", "pictures"
_SHOWN = 20  # rows of the table
_MOST_EMBEDDED = 12_000_000  # bytes of features on the page
_RAMP = 16  # colours of similarity on the page
_QUESTIONS: dict[str, Question] = {
    "pca": "components",
    "similar": "similarity",
    "correspond": "matches",
}
_OWNERS = {"foreground": "pca", "basis": "pca", "at": "correspond", "mutual": "correspond"}


@dataclass(frozen=True, slots=True)
class PlacesRequest:
    """Analysis: options that say what to show of places (tokens or pixels); the default is PCA."""

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
            read=parse.read_pixels,
        ),
    ] = None
    correspond: Annotated[
        str | None, Flag("--correspond IMAGE", "Match the places of --image with those of IMAGE.")
    ] = None
    at: Annotated[
        tuple[int, int] | None,
        Flag("--at X,Y", "With --correspond: the match of this pixel.", read=parse.read_pixels),
    ] = None
    mutual: Annotated[
        bool, Flag("--mutual", "With --correspond: only places that choose each other.")
    ] = False
    image: Annotated[
        str | None,
        Flag("--image IMAGE", "The image of --similar and --correspond.  [default: the first]"),
    ] = None

    def find_question(self) -> Question:
        """Return the question, such as ``"matches"``; raise a RequestError if options conflict."""
        asked = [name for name in _QUESTIONS if getattr(self, name)] or ["pca"]
        if len(asked) > 1:
            one, two = asked[:2]
            raise RequestError(f"`{one}` and `{two}` are two questions", "ask one at a time")
        for name, owner in _OWNERS.items():
            if getattr(self, name) and owner != asked[0]:
                hint = f"add `{owner}`, or leave it out"
                raise RequestError(f"`{name}` belongs to `{owner}`", hint)
        if self.image is not None and asked == ["pca"]:
            what = "`image` belongs to `similar` and `correspond`"
            raise RequestError(what, "leave it out, or add one of them")
        return _QUESTIONS[asked[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesOutcome(AnalysisOutcome["PlacesDocument"]):
    """The result of ``places``: each row sums up the places of one layer in one image.

    Places are tokens, or pixels of feature maps. The file ``places.parquet`` has a row per place.
    """

    rows: tuple[PlacesRow, ...]

    def table(self) -> Table[PlacesRow]:
        from hookcli.analysis.images import name_images

        names = name_images(self.analysis.runs[0])
        rows = [replace(row, image=names[row.image]) for row in self.rows[:_SHOWN]]
        return Table(look=_look(), rows=rows, caption=[*self._caption()])

    def _caption(self) -> Iterator[str]:
        if self.result.point is not None and self.result.other:
            for row in self.rows:
                if row.similarity is None:
                    x, y = self.result.point
                    yield f"{row.layer}: the place at {x},{y} has no mutual match"
        if len(self.rows) > _SHOWN:
            yield f"the first {_SHOWN} of {len(self.rows):,} rows; all of them: `rows`"
        for layer in self.result.layers:
            parts = [f"{layer.places:,} places of {count(layer.features, 'feature')}"]
            if layer.explained:
                shares = ", ".join(f"{share:.1%}" for share in layer.explained)
                where = " of the places in `basis`" * ("--basis" in (self.result.command or ()))
                parts.append(f"the three components have {shares} of the variance{where}")
            if layer.prefix:
                parts.append(f"{count(layer.prefix, 'prefix token')} left out")
            yield f"{layer.layer}: {'; '.join(parts)}"
        if self.result.left_out:
            yield f"left out, since they have no places: {', '.join(self.result.left_out)}"
        yield f"every place: {self.analysis.where(_TABLE)}"
        yield from self.analysis.list_weights()


@verb(*TABLES)
def places(
    call: VerbCall, source: RunOrModel, style: PlacesRequest, output: AnalysisOptions
) -> PlacesOutcome:
    """Colour the places of layers by their components, or find similar and matching places.

    Places are the tokens of an image, or the pixels of a layer's feature maps; components are the
    principal components of their features. With a run, hookcli shows all layers that have places,
    or those of --layers.

    Examples:
        hookcli places resnet18 cat.jpg dog.jpg --layers layer3 --pca
        hookcli places hookcli-runs/vit --similar 220,180 --image cat.jpg
        hookcli places hookcli-runs/vit --correspond dog.jpg --at 220,180
    """
    from hookcli.analysis.places import read_bases

    kind, bases = style.find_question(), None
    if style.basis is not None:
        bases = read_bases(style.basis, foreground=style.foreground)
    names = [name for name in (style.image, style.correspond) if name is not None]
    with open_analysis(call, source, style, output, "none", names=names) as analysis:
        return _answer(analysis, style, kind, bases)


def _answer(
    analysis: Analysis, style: PlacesRequest, kind: Question, bases: Mapping[str, Basis] | None
) -> PlacesOutcome:
    from hookcli.analysis.images import list_geometry
    from hookcli.analysis.parquet import TableWriter
    from hookcli.analysis.places import PlacesDocument
    from hookcli.analysis.places_answers import PlacesQuestion, find_images

    (run,) = analysis.runs
    calls, left_out = _choose(analysis)
    image, other = find_images(run, kind, style.image, style.correspond)
    point, geometry = style.similar or style.at, list_geometry(run)
    question = PlacesQuestion(
        kind, image, other, point, geometry, bases, style.foreground, style.mutual
    )
    drawn = question.choose_drawn(calls, run.images)
    images = 2 if other else len(run.images)
    analysis.say_plan(f"{count(len(calls), 'layer')}, {count(images, 'image')}, {kind}")
    layers: list[LayerAnswers] = []
    steps, room = question.passes * len(calls) * images, _MOST_EMBEDDED // len(calls)
    bar = analysis.count(steps, "images read", is_long=steps > 0)
    with analysis.folder() as folder:
        with folder.open(_TABLE) as stream, TableWriter(stream) as table, bar as progress:
            for call in calls:
                watched = replace(call, on_read=lambda n: progress.chunk_done(progress.done + n))
                layers.append(question.answer(watched, drawn, room, table))
        document = PlacesDocument(
            **analysis.common,
            question=kind,
            image=image,
            other=other,
            point=point,
            layers=tuple(layer.facts for layer in layers),
            left_out=left_out,
            images=tuple(row for layer in layers for row in layer.rows),
        )
        _write(analysis, layers, document, folder)
    return PlacesOutcome(
        analysis=analysis, files=folder.files, result=document, rows=document.images
    )


def _choose(analysis: Analysis) -> tuple[Sequence[SavedCall], tuple[str, ...]]:
    calls = analysis.choose_calls(analysis.runs[0])
    chosen = [call for call in calls if call.places]
    if not chosen or (analysis.source.is_run and analysis.forms):
        return calls, ()  # a layer without places is an error that names the layer
    return chosen, tuple(call.call_id for call in calls if not call.places)


def _write(
    analysis: Analysis, layers: Sequence[LayerAnswers], result: PlacesDocument, folder: ResultFolder
) -> None:
    from hookcli.analysis.images import name_images
    from hookcli.analysis.pictures import copy_pictures
    from hookcli.analysis.places import BASIS, write_bases
    from hookcli.analysis.places_answers import TITLES, list_notes, make_data
    from hookcli.render.draw.figures import list_colors
    from hookcli.render.draw.panels import PlaceMap, draw_place_maps
    from hookcli.render.report.analysis_page import arrange_images

    if bases := {layer.call_id: layer.basis for layer in layers if layer.basis is not None}:
        folder.write(BASIS, write_bases(bases))
    keys = list(dict.fromkeys(key for layer in layers for key in layer.maps))
    pictures = copy_pictures(analysis.runs[0], folder, only=set(keys))
    title = TITLES[result.question].format(analysis.facts[0].model.name)
    seen = {image.key: image.seen for image in pictures.images}
    maps = {
        layer.call_id: {
            key: PlaceMap(each.places.grid, each.colours, each.values, each.marks, layer.low)
            for key, each in layer.maps.items()
        }
        for layer in layers
    }
    files: dict[str, str] = {}
    for group in [keys] if result.other else [[key] for key in keys]:
        photos = {key: folder.read(seen[key]) if seen.get(key) else None for key in group}
        heading = [title, *list_notes(result), "   ".join(group)]
        data = draw_place_maps(photos, maps, heading, analysis.output.theme)
        files |= dict.fromkeys(group, folder.write(f"{_PICTURES}/{'-'.join(group)}.png", data))
    shown = [image for image in pictures.images if image.key in files]
    kept = replace(pictures, images=tuple(shown))
    total = len({row.image for row in result.images})
    contact = arrange_images(kept, [], {}, total, "the first ones")
    names = [tile["name"] for tile in contact["tiles"]]
    values = {
        "contact": contact,
        "data": make_data(result, layers, shown, names, files, list_colors(_RAMP)),
        "named": name_images(analysis.runs[0]),
        "tables": (_TABLE, *([BASIS] if bases else [])),
    }
    analysis.write_page(folder, title, result, values)


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
