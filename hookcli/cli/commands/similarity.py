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
    from hookcli.analysis.similarity import PairRow
    from hookcli.cli.analysis import Analysis

_TABLE, _PICTURE = "similarity.csv", "similarity.png"
LEAST_LAYERS = 2


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
        hookcli similarity resnet18 photos --layers conv
        hookcli similarity hookcli-runs/before hookcli-runs/after
    """
    save = SaveStyle(style.pool)
    with open_analysis(source, style, output, context, save, most=2) as analysis:
        _compare(analysis, style)
    return analysis.exit_code


def _compare(analysis: Analysis, style: SimilarityRequest) -> None:
    from hookcli.analysis.similarity import (
        PairRow,
        SimilarityDocument,
        compare_layers,
        estimate_cost,
        list_pairs,
        list_partners,
    )
    from hookcli.cli.output.progress import Progress
    from hookcli.outside.tables import render_csv
    from hookcli.render.charts.matrix_png import draw_matrix
    from hookcli.render.report.analysis_page import render_analysis

    calls = [analysis.choose_calls(run, style.pool) for run in analysis.runs]
    a, b = (calls[0], calls[1] if len(calls) > 1 else ())
    if not b and len(a) < LEAST_LAYERS:
        raise RequestError(
            f"{a[0].call_id!r} is the only layer, and similarity compares layers",
            "choose more `layers`, or name a second run",
        )
    memory, disk = estimate_cost((*a, *b))
    analysis.say(
        f"similarity: {count(len(a) + len(b), 'layer')}, {count(len(a[0].images), 'image')}, about "
        f"{memory_text(memory)} of memory and {memory_text(disk)} of temporary files, "
        f"into {analysis.place}"
    )
    bar = Progress(len(a) + len(b), "layers", is_shown=not analysis.output.quiet)
    with bar as progress:
        result = compare_layers(a, b, style.pool, lambda done: progress.chunk_done(done, 0))
    names = ([call.call_id for call in a], [call.call_id for call in b or a])
    document = SimilarityDocument(
        **analysis.common,
        images=result.images,
        batch=result.batch,
        pairs=tuple(list_pairs(*names, result.ckas, is_one_run=not b)),
        partners=tuple(list_partners(*names, result.ckas, is_one_run=not b)),
    )
    models = dict.fromkeys(each.model.name for each in analysis.facts)
    title = f"Which layers of {' and '.join(models)} compute the same"
    heading = [title, f"linear CKA, unbiased, {count(result.images, 'image')}"]
    with analysis.folder() as folder:
        folder.write(_TABLE, render_csv(PairRow, document.pairs).encode())
        picture, cells = draw_matrix(result.ckas, names, heading, analysis.output.theme)
        folder.write(_PICTURE, picture)
        values = {"picture": _PICTURE, "table": _TABLE, "cells": cells}
        data = {
            "rows": names[0],
            "columns": names[1],
            "values": [[round(float(each), 4) for each in row] for row in result.ckas],
            "cells": asdict(cells),
        }
        page = render_analysis("similarity", title, document, {**values, "data": data})
        folder.write(PAGE, page.encode())
    rows = document.partners if analysis.output.is_brief else document.pairs
    analysis.print(_look(), rows, document, [f"every pair is in {analysis.place / _TABLE}"])


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
