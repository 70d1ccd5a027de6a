"""Define the result of ``diff`` and ``compare``, its table and its JSON document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Literal

from hookcli.distance.answer import Answer
from hookcli.distance.comparison import ChangedFact, DiffRow, LeftOut
from hookcli.distance.culprits import blame_text
from hookcli.distance.tolerance import Tolerance
from hookcli.distance.verdict import changed_text, first_text, list_notes, verdict_text
from hookcli.outside.documents import Document, Rows
from hookcli.outside.flags import Flag
from hookcli.records.shared_fields import Command, SkippedImages, UncalledLayers
from hookcli.records.text import figure_text, shape_text
from hookcli.store.locations.names import PAGE
from hookcli.verbs.outcome import Look, Outcome, Page, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hookcli.distance.comparison import Comparison
    from hookcli.verbs.call import Note

_OWN = {  # with ``blame``, these columns show own errors
    "median channel": lambda row: figure_text(row.own_channel_median),
    "worst channel": lambda row: figure_text(row.own_channel_worst),
}
_LOOK = Look(
    kind=DiffRow,
    columns={
        "#": lambda row: str(row.order),
        "call": lambda row: row.names,
        "type": lambda row: row.module_type,
        "shape": lambda row: shape_text(row.shape or row.other_shape),
        "rel L2": lambda row: figure_text(row.rel_l2),
        "own L2": lambda row: figure_text(row.own_rel_l2),
        "max abs": lambda row: figure_text(row.max_abs),
        "mean abs": lambda row: figure_text(row.mean_abs),
        "median channel": lambda row: figure_text(row.channel_median),
        "worst channel": lambda row: figure_text(row.channel_worst),
        "cosine": lambda row: "" if row.cosine is None else f"{row.cosine:.7g}",
        "tolerance": lambda row: figure_text(row.tolerance),
        "holds": lambda row: "yes" if row.holds else row.reason or "no",
    },
    words=("call", "type", "shape", "holds", "mark"),
    messages=("holds",),
    fold=("call", "holds"),
    drop=(
        *("type", "shape", "cosine", "mean abs", "max abs", "tolerance"),
        *("median channel", "worst channel"),
    ),
)


def pictures_flag(needs: str = "") -> Flag:
    """Return the option ``pictures``; ``needs`` is added to its help."""
    text = f"Also write a page with pictures of the calls that differ most{needs}."
    return Flag("--pictures DIR", text, panel="Output")


@dataclass(frozen=True, slots=True)
class CallTable:
    """Output: options that choose the calls in the table of a comparison, and their order."""

    top: Annotated[
        int,
        Flag(
            "--top N",
            "Calls in the table: the worst, and the culprits; csv and json have every image.",
            at_least=1,
            late=True,
        ),
    ] = 20
    sort: Annotated[
        Literal["order", "worst"],
        Flag("--sort ORDER", "Rows in the order of the network, or the worst first.", late=True),
    ] = "order"


@dataclass(frozen=True, slots=True)
class Keep:
    """The names of ONNX nodes to keep in float32, as arguments of tools that convert ONNX files.

    Attributes:
        node_block_list: for ``convert_float_to_float16`` of onnxconverter-common and onnxruntime.
        nodes_to_exclude: for the quantizers of onnxruntime.
    """

    node_block_list: tuple[str, ...]
    nodes_to_exclude: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonDocument(Document):
    """The output of ``hookcli diff`` or ``hookcli compare`` with ``--format json``.

    Attributes:
        command: the command line that repeats the comparison.
        equal: whether every call is within its tolerance, and no image is missing.
        first: the id of the first call that differs, in the order in which calls complete; null if
            no call differs.
        verdict: the result in words.
        culprits: the ids of the calls that differ by themselves, not only because their inputs
            differ, in the order in which they complete; null without ``--blame``.
        blame: which calls are culprits, in words; empty without ``--blame``.
        keep: the names of the ONNX nodes that compute the culprits; null unless B is an ONNX file
            and ``--blame`` was given.
        answer: how far the answers of A and B (such as classes) agree; null for
            ``hookcli diff``, and if the outputs cannot be compared.
        a: the first run (A, the reference), as the user named it.
        b: the second run (B), as the user named it.
        tolerance: the tolerance that was requested.
        changed: the facts that affect a run, such as its weights, and that differ between A and B.
        images: the keys (unique names) of the compared images.
        only_in_a: the keys of the images that only run A has.
        only_in_b: the keys of the images that only run B has.
        uncalled: the selected layers that ran in neither run.
        left_out: the calls that were not compared, and why.
        notes: changes that hookcli made to a model on its own, and that affect the computed values.
        remarks: sentences on the images and on how exact the distances are: for example, that
            hookcli compared only statistics.
        layers: one row per call, in the order in which calls complete in A, or the worst call
            first (``--sort worst``); each row has the distances of the call's worst image.
        calls: one row per call and image, in the order of ``layers`` and then of ``images``.
    """

    command: Command
    equal: bool
    first: str | None
    verdict: str
    culprits: tuple[str, ...] | None
    blame: str
    keep: Keep | None
    answer: Answer | None
    a: str
    b: str
    tolerance: Tolerance
    changed: tuple[ChangedFact, ...]
    images: tuple[str, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    skipped: SkippedImages
    uncalled: UncalledLayers
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...]
    layers: tuple[DiffRow, ...]
    calls: Rows[DiffRow]


@dataclass(frozen=True)
class ComparisonOutcome(Outcome):
    """Says how far two runs, or two ways of running a model, differ.

    Attributes:
        result: the compared calls and their distances; the worst call is first.
        files: the paths of the page and its pictures, by name; empty without ``pictures``.
    """

    notes: Sequence[Note]
    command: tuple[str, ...] | None
    style: CallTable
    result: Comparison
    files: Mapping[str, Path]

    @property
    def rows(self) -> Sequence[DiffRow]:
        return self._sorted.image_rows

    @property
    def exit_code(self) -> int:
        return self.result.exit_code

    @property
    def page(self) -> Page | None:
        return Page(self.files, PAGE) if self.files else None

    @cached_property
    def headlines(self) -> list[str]:
        """The sentences above the table: whether A and B agree, and which call differs first.

        With ``--blame``, another sentence names the calls that differ by themselves (the culprits).
        """
        blame = self.result.blame
        blamed = [] if blame is None else [blame_text(blame)]
        return [*dict.fromkeys([verdict_text(self.result), *blamed, first_text(self.result)])]

    @cached_property
    def _sorted(self) -> Comparison:
        by = attrgetter("order" if self.style.sort == "order" else "rank")
        result = self.result
        rows, of_images = (sorted(each, key=by) for each in (result.rows, result.image_rows))
        return replace(result, rows=tuple(rows), image_rows=tuple(of_images))

    def document(self) -> ComparisonDocument:
        result, blame = self._sorted, self.result.blame
        return ComparisonDocument(
            command=self.command,
            equal=result.equal,
            first=None if result.first is None else result.first.call_id,
            verdict=self.headlines[0],
            culprits=None if blame is None else blame.ids,
            blame="" if blame is None else blame_text(blame),
            keep=None if result.keep is None else Keep(result.keep, result.keep),
            answer=result.answer,
            a=result.a,
            b=result.b,
            tolerance=result.tolerance,
            changed=result.changed,
            images=result.images,
            only_in_a=result.only_in_a,
            only_in_b=result.only_in_b,
            skipped=result.skipped,
            uncalled=tuple(layer.row() for layer in result.uncalled),
            left_out=result.left_out,
            notes=result.notes,
            remarks=tuple(list_notes(result)),
            layers=result.rows,
            calls=result.image_rows,
        )

    def table(self) -> Table[DiffRow]:
        blame = self.result.blame
        culprits = () if blame is None else blame.ids
        rows = [r for r in self._sorted.rows if r.rank <= self.style.top or r.call_id in culprits]
        columns: dict[str, Callable[[DiffRow], str]] = dict(_LOOK.columns)
        if any(map(self._mark, rows)):
            columns["mark"] = self._mark
        if blame is None:
            del columns["own L2"]
        else:
            columns |= _OWN
        return Table(
            look=replace(_LOOK, columns=columns),
            rows=rows,
            headlines=self.headlines,
            caption=[*self._caption(len(rows))],
        )

    def _mark(self, row: DiffRow) -> str:
        first, blame = self.result.first, self.result.blame
        marks = {
            "culprit": blame is not None and row.call_id in blame.ids,
            "first": first is not None and row.rank == first.rank,
            "worst": row.rank == 1 and bool(row.reason or row.max_abs or row.rel_l2),
        }
        return ", ".join(mark for mark, is_it in marks.items() if is_it)

    def _caption(self, shown: int) -> Iterator[str]:
        result = self._sorted
        calls = len(result.rows)
        some = f"the worst {shown} of {calls} calls"
        if result.blame and result.blame.culprits:
            some = f"{shown} of {calls} calls: the worst, and the culprits"
        shown_calls = [some] if shown < calls else []
        if len(result.images) > 1:
            shown_calls.append("the figures are from each call's worst image")
        if shown_calls:
            yield f"{', and '.join(shown_calls)}; all of them: `rows`"
        yield f"A (the reference): {result.a}; B: {result.b}"
        yield from list_notes(result)
        yield from map(changed_text, result.changed)
