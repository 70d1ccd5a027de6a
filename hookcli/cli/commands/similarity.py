"""The command ``hookcli similarity``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hookcli.cli.analysis import AnalysisOptions, memory_text, open_analysis
from hookcli.cli.option_groups import command
from hookcli.cli.output.table import Look
from hookcli.cli.run_or_model import RunOrModel
from hookcli.config import SaveStyle
from hookcli.errors import RequestError
from hookcli.outside.flags import Flag
from hookcli.records.analysis import WholePool
from hookcli.records.text import count
from hookcli.store.places.names import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.analysis.similarity import LayerSimilarity, PairRow, SimilarityDocument
    from hookcli.cli.analysis import Analysis

_TABLE, _PICTURE = "similarity.csv", "similarity.png"


@dataclass(frozen=True, slots=True)
class SimilarityRequest:
    """Analysis: what is compared of each layer."""

    pool: Annotated[
        WholePool,
        Flag("--pool none|mean|max", "Compare whole maps, or one value of each channel."),
    ] = "none"


@command
def similarity(
    source: RunOrModel,
    style: SimilarityRequest,
    output: AnalysisOptions,
    context: typer.Context,
) -> int:
    """Compare every pair of layers, of one run or of two: which compute the same?

    With two runs of the same images: hookcli similarity RUN RUN.

    Examples:
        hookcli similarity resnet18 pets --layers conv
        hookcli similarity hookcli-runs/old hookcli-runs/new
    """
    from hookcli.analysis.similarity import LEAST

    save = SaveStyle(style.pool)
    with open_analysis(source, style, output, context, save, most=2, least=LEAST) as analysis:
        _compare(analysis, style)
    return analysis.exit_code


def _compare(analysis: Analysis, style: SimilarityRequest) -> None:
    from hookcli.analysis.similarity import (
        SimilarityDocument,
        compare_layers,
        estimate_cost,
        list_pairs,
        list_partners,
    )
    from hookcli.cli.output.progress import Progress

    calls = [analysis.choose_calls(run, style.pool) for run in analysis.runs]
    a, b = (calls[0], calls[1] if len(calls) > 1 else ())
    if not b and len(a) < 2:
        raise RequestError(
            f"{a[0].call_id!r} is the only layer, and similarity compares layers",
            "choose more `layers`, or name a second run",
        )
    memory, disk = estimate_cost((*a, *b))
    analysis.say_plan(
        f"{count(len(a) + len(b), 'layer')}, {count(len(a[0].images), 'image')}, about "
        f"{memory_text(disk)} of temporary files",
        memory,
    )
    bar = Progress(len(a) + len(b), "layers", is_shown=not analysis.output.quiet)
    with bar as progress:
        result = compare_layers(
            a,
            b,
            style.pool,
            lambda done: progress.chunk_done(done, 0),
            may_leave_out=not analysis.source.forms,
        )
    if len(result.a) < (1 if b else 2) or not result.b:
        raise RequestError(
            f"too few layers are left: {result.left_out[0]!r} and others have the same features "
            "for all images",
            "choose other `layers`",
        )
    names = (result.a, result.b)
    document = SimilarityDocument(
        **analysis.common,
        images=result.images,
        batch=result.batch,
        left_out=result.left_out,
        pairs=tuple(list_pairs(*names, result.ckas, is_one_run=not b)),
        partners=tuple(list_partners(*names, result.ckas, is_one_run=not b)),
    )
    _write(analysis, document, result)
    rows = document.partners if analysis.output.is_brief else document.pairs
    analysis.print(_look(), rows, document, _caption(analysis, document))


def _caption(analysis: Analysis, document: SimilarityDocument) -> Iterator[str]:
    if compared := _say_compared(document):
        yield compared
    if document.left_out:
        yield f"left out, since all images have the same features: {', '.join(document.left_out)}"
    yield f"every pair is in {analysis.place / _TABLE}"


def _say_compared(document: SimilarityDocument) -> str:
    totals = [run.images for run in document.runs]
    if all(total == document.images for total in totals):
        return ""
    compared = f"compared {count(document.images, 'image')} of"
    if len(totals) == 1:
        return f"{compared} {totals[0]:,}: the others lack a tensor of a layer"
    return f"{compared} {totals[0]:,} in A and {totals[1]:,} in B: the others are in one run alone"


def _write(analysis: Analysis, document: SimilarityDocument, result: LayerSimilarity) -> None:
    from hookcli.analysis.similarity import PairRow
    from hookcli.outside.tables import render_csv
    from hookcli.render.charts.matrix_png import draw_matrix
    from hookcli.render.report.analysis_page import render_analysis

    models = dict.fromkeys(each.model.name for each in analysis.facts)
    title = f"Which layers of {' and '.join(models)} compute the same"
    heading = [title, f"linear CKA, unbiased, {count(result.images, 'image')}"]
    with analysis.folder() as folder:
        folder.write(_TABLE, render_csv(PairRow, document.pairs).encode())
        picture, cells = draw_matrix(
            result.ckas, (result.a, result.b), heading, analysis.output.theme
        )
        folder.write(_PICTURE, picture)
        values = {
            "picture": _PICTURE,
            "table": _TABLE,
            "cells": cells,
            "compared": _say_compared(document),
            "data": {
                "rows": result.a,
                "columns": result.b,
                "values": [[round(float(each), 4) for each in row] for row in result.ckas],
                "cells": asdict(cells),
            },
        }
        folder.write(PAGE, render_analysis("similarity", title, document, values).encode())


def _look() -> Look[PairRow]:
    from hookcli.analysis.similarity import PairRow

    return Look(
        kind=PairRow,
        columns={
            "layer": lambda row: row.a,
            "most similar": lambda row: row.b,
            "CKA": lambda row: f"{row.cka:.4f}",
        },
        words=("layer", "most similar"),
        fold=("layer", "most similar"),
        drop=(),
    )
