"""Define ``hookcli similarity``, which compares pairs of layers: its options, table and files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from hookcli.errors import RequestError
from hookcli.outside.flags import Flag
from hookcli.records.analysis import WholePool
from hookcli.records.text import count
from hookcli.verbs.analysis import Analysis, AnalysisOptions, AnalysisOutcome, open_analysis
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import TABLES, verb
from hookcli.verbs.outcome import Look, Table
from hookcli.verbs.runs import RunOrModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hookcli.analysis.similarity import LayerSimilarity, PairRow, SimilarityDocument

_TABLE, _PICTURE = "similarity.csv", "similarity.png"


@dataclass(frozen=True, slots=True)
class SimilarityRequest:
    """Analysis: the option that says which values of each layer are compared."""

    pool: Annotated[
        WholePool, Flag("--pool none|mean|max", "Compare whole maps, or one value of each channel.")
    ] = "none"


@dataclass(frozen=True, kw_only=True)
class Similarity(AnalysisOutcome["LayerSimilarity"]):
    """The result of ``similarity``: how similar each pair of layers is, of one run or of two.

    Attributes:
        result: ``ckas[i, j]`` is the linear CKA (centered kernel alignment) of layer ``a[i]`` with
            layer ``b[j]``.
        partners: for each layer of ``a``, the pair with the most similar layer of ``b``.
    """

    rows: tuple[PairRow, ...]
    partners: tuple[PairRow, ...]

    def document(self) -> SimilarityDocument:
        from hookcli.analysis.similarity import SimilarityDocument

        return SimilarityDocument(
            **self.analysis.common,
            images=self.result.images,
            batch=self.result.batch,
            left_out=self.result.left_out,
            pairs=self.rows,
            partners=self.partners,
        )

    def table(self) -> Table[PairRow]:
        return Table(look=_look(), rows=self.partners, caption=[*self._caption()])

    def _caption(self) -> Iterator[str]:
        if self.compared:
            yield self.compared
        if left_out := self.result.left_out:
            yield f"left out, since all images have the same features: {', '.join(left_out)}"
        yield f"every pair is in {self.analysis.where(_TABLE)}"
        yield from self.analysis.list_weights()

    @cached_property
    def compared(self) -> str:
        """A sentence that says how many images were compared, and why not all; "" if all were."""
        totals, images = [run.images for run in self.analysis.facts], self.result.images
        if all(total == images for total in totals):
            return ""
        of = f"compared {count(images, 'image')} of"
        if len(totals) == 1:
            return f"{of} {totals[0]:,}: the others lack a tensor of a layer"
        return f"{of} {totals[0]:,} in A and {totals[1]:,} in B: the others are in one run alone"


@verb(*TABLES)
def similarity(
    call: VerbCall, source: RunOrModel, style: SimilarityRequest, output: AnalysisOptions
) -> Similarity:
    """Compare every pair of layers, of one run or of two: which compute the same?

    The measure is linear CKA. With two runs of the same images: hookcli similarity RUN RUN.

    Examples:
        hookcli similarity resnet18 pets --layers conv
        hookcli similarity hookcli-runs/old hookcli-runs/new
    """
    from hookcli.analysis.similarity import LEAST

    with open_analysis(call, source, style, output, style.pool, most=2, least=LEAST) as analysis:
        result = _compare(analysis, style)
        found = Similarity(
            analysis=analysis,
            files={},
            result=result,
            rows=tuple(result.list_pairs()),
            partners=tuple(result.list_partners()),
        )
        return replace(found, files=_write(found))


def _compare(analysis: Analysis, style: SimilarityRequest) -> LayerSimilarity:
    from hookcli.analysis.similarity import compare_layers

    calls = [analysis.choose_calls(run, style.pool) for run in analysis.runs]
    a, b = (calls[0], calls[1] if len(calls) > 1 else ())
    if not b and len(a) < 2:
        what = f"{a[0].call_id!r} is the only layer, and similarity compares layers"
        raise RequestError(what, "choose more `layers`, or name a second run")
    analysis.say_plan(f"{count(len(a) + len(b), 'layer')}, {count(len(a[0].images), 'image')}")
    with analysis.count(len(a) + len(b), "layers") as bar:
        result = compare_layers(a, b, style.pool, bar.chunk_done, may_leave_out=not analysis.forms)
    if len(result.a) < (1 if b else 2) or not result.b:
        same = f"{result.left_out[0]!r} and others have the same features for all images"
        raise RequestError(f"too few layers are left: {same}", "choose other `layers`")
    return result


def _write(found: Similarity) -> Mapping[str, Path | bytes]:
    from hookcli.analysis.similarity import PairRow
    from hookcli.outside.tables import render_csv
    from hookcli.render.draw.matrix_png import draw_matrix

    analysis, result = found.analysis, found.result
    models = dict.fromkeys(each.model.name for each in analysis.facts)
    title = f"Which layers of {' and '.join(models)} compute the same"
    heading = [title, f"linear CKA, unbiased, {count(result.images, 'image')}"]
    with analysis.folder() as folder:
        folder.write(_TABLE, render_csv(PairRow, found.rows).encode())
        names, theme = (result.a, result.b), analysis.output.theme
        folder.write(_PICTURE, draw_matrix(result.ckas, names, heading, theme))
        values = {
            "tables": (_TABLE, _PICTURE),
            "compared": found.compared,
            "data": {
                "rows": result.a,
                "columns": result.b,
                "values": result.ckas.round(4).tolist(),
            },
        }
        analysis.write_page(folder, title, found.document(), values)
    return folder.files


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
