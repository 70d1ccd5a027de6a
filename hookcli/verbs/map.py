"""Define ``hookcli map``, which lays out images by features: its options, table, files and page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from hookcli.errors import RequestError
from hookcli.outside.escape import for_page, reversible
from hookcli.outside.flags import Flag
from hookcli.outside.foreign import require_package
from hookcli.records.text import count, figure_text
from hookcli.verbs.analysis import (
    Analysis,
    AnalysisOptions,
    AnalysisOutcome,
    FeaturePool,
    GivenLabels,
    LayersOf,
    group_by_label,
    labels_flag,
    open_analysis,
)
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import TABLES, verb
from hookcli.verbs.outcome import Look, Table
from hookcli.verbs.runs import RunOrModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hookcli.analysis.map import MapDocument, MapRow
    from hookcli.render.report.contact import Group

_TABLE, _NEIGHBOURS, _PICTURE = "map.csv", "neighbours.csv", "map.png"
_OUTLIERS = 15  # rows of the table, and at most so many marks on the picture
_GROUPS, _MEMBERS = 12, 6  # groups of duplicates that the terminal shows, and images of each


@dataclass(frozen=True, slots=True)
class MapRequest:
    """Analysis: options that choose the features, neighbours and labels of ``map``."""

    pool: FeaturePool = "mean"
    neighbours: Annotated[
        int, Flag("--neighbours N", "Nearest images to list for each image.", at_least=1)
    ] = 10
    duplicates: Annotated[
        float | None,
        Flag(
            "--duplicates DISTANCE",
            "Largest distance of near duplicates.  [default: from the distances of all images]",
            at_least=0,
            at_most=2,
        ),
    ] = None
    labels: Annotated[
        GivenLabels | None, labels_flag("Colour the map by folder, or by a file of labels.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ImageMap(AnalysisOutcome["MapDocument"]):
    """The result of ``map``: images laid out in a plane by the features of one layer.

    Attributes:
        result: the images, the largest outlier score first; their neighbours; and the groups of
            near duplicates.
    """

    @property
    def rows(self) -> Sequence[MapRow]:
        """All images, the one with the largest outlier score first."""
        return self.result.images

    def table(self) -> Table[MapRow]:
        caption = [*_list_lines(self.result, self.analysis), *self.analysis.list_weights()]
        return Table(look=_look(), rows=self.rows[:_OUTLIERS], caption=caption)


@verb(*TABLES)
def map(  # noqa: A001  the name of the command
    call: VerbCall,
    source: RunOrModel,
    style: MapRequest,
    output: AnalysisOptions,
    layers: LayersOf = (),
) -> ImageMap:
    """Lay out images by the features of one layer: neighbours, near duplicates, outliers.

    Without --layers, hookcli uses the model's own pooled embedding, or the input of its classifier.
    If --layers names several layers, hookcli uses the last one.
    Needs scikit-learn: pip install 'hookcli[analysis]'

    Examples:
        hookcli map resnet18 pets
        hookcli map hookcli-runs/resnet18 --layers layer4.1.conv2 --labels folders
    """
    from hookcli.analysis.labels import Labels
    from hookcli.analysis.map import LEAST

    require_package("a map needs", "sklearn", "scikit-learn", "analysis")
    labels = None if style.labels is None else Labels.read(style.labels)
    how = (call, source, style, output, style.pool)
    with open_analysis(*how, least=LEAST, only=None if layers else "features") as analysis:
        result = _map(analysis, style, {} if labels is None else labels.of(analysis.runs[0]))
        return ImageMap(analysis=analysis, files=_write(analysis, result), result=result)


def _map(analysis: Analysis, style: MapRequest, labels: Mapping[str, str]) -> MapDocument:
    from hookcli.analysis.features import choose_features
    from hookcli.analysis.images import name_images
    from hookcli.analysis.map import MapDocument, find_neighbours, list_neighbours, map_images

    (run,) = analysis.runs
    calls = analysis.choose_calls(run, style.pool)
    call, reason = (calls[-1], "") if analysis.forms else choose_features(run, calls)
    why = f" ({reason})" if reason else ""
    analysis.say_plan(f"{call.call_id}{why}, {count(len(call.images), 'image')}")
    with analysis.count(len(call.images), "images") as progress:
        features = replace(call, on_read=progress.step).pool_features(style.pool)
    try:
        neighbours = find_neighbours(features, style.neighbours, style.duplicates)
        names = name_images(run)
        shown = [names[key] for key in call.images]
        known = {names[key]: label for key, label in labels.items()}
        rows, duplicates, explained = map_images(shown, features, neighbours, known)
    except RequestError as error:
        raise RequestError(f"{call.call_id!r}: {error.message}", error.hint) from error
    return MapDocument(
        **analysis.common,
        layer=call.call_id,
        reason=reason,
        features=features.shape[1],
        explained=explained,
        duplicates=tuple(duplicates),
        duplicate_distance=neighbours.near,
        crowded=neighbours.crowded,
        images=tuple(rows),
        neighbours=tuple(list_neighbours(shown, neighbours)),
    )


def _look() -> Look[MapRow]:
    from hookcli.analysis.map import MapRow

    return Look(
        kind=MapRow,
        columns={
            "#": lambda row: str(row.rank),
            "image": lambda row: row.image,
            "label": lambda row: row.label,
            "outlier score": lambda row: figure_text(row.outlier_score),
            "nearest": lambda row: row.nearest,
            "distance": lambda row: figure_text(row.distance),
            "group": lambda row: "" if row.group is None else str(row.group),
        },
        words=("image", "label", "nearest"),
        fold=("image", "nearest"),
        drop=("label", "group", "distance", "nearest"),
    )


def _list_lines(document: MapDocument, analysis: Analysis) -> Iterator[str]:
    shown = min(_OUTLIERS, len(document.images))
    why = f" ({document.reason})" if document.reason else ""
    yield f"the first {shown} of {count(len(document.images), 'image')}, by {document.layer}{why}"
    groups = document.duplicates
    for number, group in enumerate(groups[:_GROUPS], 1):
        more = f" and {len(group) - _MEMBERS:,} more" if len(group) > _MEMBERS else ""
        yield f"near duplicates, group {number}: {', '.join(group[:_MEMBERS])}{more}"
    if len(groups) > _GROUPS:
        yield f"and {len(groups) - _GROUPS} more groups of near duplicates"
    which = "any two of a group are" if groups else "no near duplicates, which would be"
    yield f"{which} at most {figure_text(document.duplicate_distance)} apart"
    if not all(run.model.trained for run in document.runs):
        yield "the weights are not all trained, so distances and near duplicates mean little"
    if document.crowded:
        images = count(document.crowded, "image")
        yield f"not judged: {images}, each with more than 20 others about as near"
    yield f"every image and its neighbours: {analysis.where(_TABLE)}, {_NEIGHBOURS}"


def _write(analysis: Analysis, document: MapDocument) -> Mapping[str, Path | bytes]:
    from hookcli.analysis.images import name_images
    from hookcli.analysis.map import MapRow, NeighbourRow
    from hookcli.analysis.pictures import copy_pictures
    from hookcli.outside.tables import render_csv
    from hookcli.render.draw.scatter_png import draw_scatter
    from hookcli.render.report.analysis_page import arrange_images
    from hookcli.render.report.contact import Sort

    rows = document.images
    names = name_images(analysis.runs[0])
    key_of = {name: key for key, name in names.items()}
    title = f"The images of {analysis.facts[0].model.name} by {document.layer}"
    labelled: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        labelled.setdefault(row.label or "no label", []).append(index)
    by_label = dict(sorted(labelled.items(), key=lambda each: (-len(each[1]), each[0])))
    groups = _list_groups(document, by_label, key_of)
    ranked = Sort("outlier score", {key_of[row.image]: row.rank for row in rows})
    rings = [index for index, row in enumerate(rows) if row.rank <= _count_outliers(rows)]
    points = [(row.x, row.y) for row in rows]
    said = f"{count(len(rows), 'image')}; rings: the {len(rings)} largest outlier scores"
    one, two = (
        f"component {number}: {share:.1%} of the variance"
        for number, share in enumerate(document.explained, 1)
    )
    heading, theme = [title, said], analysis.output.theme
    with analysis.folder() as folder:
        folder.write(_TABLE, render_csv(MapRow, rows).encode())
        folder.write(_NEIGHBOURS, render_csv(NeighbourRow, document.neighbours).encode())
        folder.write(_PICTURE, draw_scatter(points, by_label, rings, (one, two), heading, theme))
        named = [row for row in rows if row.group or row.rank <= _count_outliers(rows)]
        first = {key_of[row.image] for row in named}
        pictures = copy_pictures(analysis.runs[0], folder, first=first)
        tile_of = {names[image.key]: tile for tile, image in enumerate(pictures.images)}
        seen = [quote(image.seen) for image in pictures.images]
        values = {
            "contact": arrange_images(pictures, groups, {"rank": ranked}, len(rows)),
            "data": {"seen": seen, **_make_data(document, tile_of, by_label)},
            "tile_of": tile_of,
            "axes": [one, two],
            "labels": [reversible(label) for label in by_label] if len(by_label) > 1 else [],
            "tables": (_TABLE, _NEIGHBOURS, _PICTURE),
        }
        analysis.write_page(folder, title, document, values)
    return folder.files


def _list_groups(
    document: MapDocument, by_label: Mapping[str, Sequence[int]], key_of: Mapping[str, str]
) -> list[Group]:
    from hookcli.render.report.contact import Group

    rows = document.images
    labelled = {label: [key_of[rows[n].image] for n in each] for label, each in by_label.items()}
    alike = frozenset(key_of[row.image] for row in rows if row.group)
    far = frozenset(key_of[row.image] for row in rows if row.rank <= _count_outliers(rows))
    groups = [
        Group(f"near duplicates ({len(alike)})", "near duplicate", alike, len(rows)),
        Group(f"outliers ({len(far)})", "outlier", far, len(rows)),
        *group_by_label(labelled if len(by_label) > 1 else {}, len(rows)),
    ]
    return [group for group in groups if group.images]


def _count_outliers(rows: Sequence[MapRow]) -> int:
    return min(_OUTLIERS, math.ceil(len(rows) / 10))  # of twelve images, not all are outliers


def _make_data(
    document: MapDocument, tiles: Mapping[str, int], by_label: Mapping[str, Sequence[int]]
) -> dict[str, object]:
    rows = {row.image: row for row in document.images}
    numbers = {label: number for number, label in enumerate(by_label)}
    near: dict[str, list[list[object]]] = {key: [] for key in tiles}
    for each in document.neighbours:
        if each.image in tiles:
            shown: object = tiles.get(each.neighbour, for_page(each.neighbour))
            near[each.image].append([shown, float(f"{each.distance:.4g}")])
    lows = [min(getattr(row, axis) for row in rows.values()) for axis in "xy"]
    highs = [max(getattr(row, axis) for row in rows.values()) for axis in "xy"]

    def locate(row: MapRow) -> list[float]:
        spans = [high - low or 1 for low, high in zip(lows, highs, strict=True)]
        return [round((row.x - lows[0]) / spans[0], 4), round(1 - (row.y - lows[1]) / spans[1], 4)]

    return {
        "tiles": [
            [*locate(rows[key]), numbers[rows[key].label or "no label"], rows[key].rank]
            for key in tiles
        ],
        "near": list(near.values()),
        "outliers": _count_outliers(document.images),
        "images": len(rows),
    }
