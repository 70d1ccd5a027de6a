"""Define ``hookcli layers``: its options, the columns and sums that it prints, and ``--sort``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from hookcli.config import Exclude, Layers, ModelRequest
from hookcli.outside.files import natural_key
from hookcli.outside.flags import Flag
from hookcli.records.rows import SurveyRow
from hookcli.records.text import and_more, shape_text
from hookcli.verbs.call import VerbCall
from hookcli.verbs.documents import LayersDocument
from hookcli.verbs.keywords import TABLES, Without, verb
from hookcli.verbs.outcome import Look, Table, UnwrittenOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.passes.survey import Survey
    from hookcli.records.rows import ModelTotal

Sort: TypeAlias = Literal["calls", "flops", "params", "memory", "name"]

_LOOK = Look(
    kind=SurveyRow,
    columns={
        "#": lambda row: "" if row.order is None else str(row.order),
        "call": lambda row: row.call_id,
        "type": lambda row: row.module_type,
        "output": lambda row: "" if row.shape is None else shape_text(row.shape),
        "layout": lambda row: row.layout,
        "params": lambda row: f"{row.params:,}",
        "MB": lambda row: "" if row.output_mb is None else f"{row.output_mb:.2f}",
        "MFLOPs": lambda row: f"{_flops_text(row)}",
        "share": lambda row: "" if row.share is None else f"{row.share:.1%}",
        "calls": lambda row: str(row.calls),
        "traps": lambda row: "; ".join(row.traps),
    },
    words=("call", "type", "output", "layout", "traps"),
    fold=("call", "traps"),
    drop=("traps", "calls", "layout", "type", "MB", "output", "params"),
    foot=("traps",),
    brief=lambda trap: trap.partition(" by ")[0].partition(" inside ")[0],
)
_MOST_NAMED = 3  # operators in the caption
# For each order, the column that decides the order, and the name of the unit that it counts.
_COUNTED: dict[Sort, tuple[str, str]] = {
    "flops": ("flops", "FLOPs"),
    "params": ("params", "parameters"),
    "memory": ("output_mb", "MB"),
}


@dataclass(frozen=True, kw_only=True)
class LayerSurvey(UnwrittenOutcome):
    """The layers of a model, with the parameters, FLOPs and memory of each for one image."""

    model: str
    input_shape: tuple[int, ...]  # with the leading axis 1
    total: ModelTotal  # the cost of the whole model
    rows: tuple[SurveyRow, ...]
    sort: Sort

    def document(self) -> LayersDocument:
        return LayersDocument(
            model=self.model, input_shape=self.input_shape, total=self.total, layers=self.rows
        )

    def table(self) -> Table[SurveyRow]:
        empty = set()
        if self.total.flops is None:
            empty |= {"MFLOPs"} if self.total.counted_flops is None else set()
            empty |= {"share"} if self.sort in ("calls", "flops", "name") else set()
        shown = {name: show for name, show in _LOOK.columns.items() if name not in empty}
        return Table(look=replace(_LOOK, columns=shown), rows=self.rows, caption=[*self._caption()])

    def _caption(self) -> Iterator[str]:
        total = self.total
        text = _flops_text(total)
        flops = f", {text} MFLOPs" if text else ""
        if total.uncounted:
            named = ", ".join(total.uncounted[:_MOST_NAMED])
            named += and_more(len(total.uncounted) - _MOST_NAMED)
            none = f", FLOPs not counted ({named})"
            flops = f"{flops} (not counted: {named})" if total.counted_flops else none
        stored = total.stored_params or 0
        parts = f" ({stored:,} with the parts of computed weights)" if stored > total.params else ""
        whole = (
            f"total: {total.params:,} parameters{parts}{flops} and {total.output_mb:,.2f} MB of "
            f"outputs of leaf layers, for an input of {shape_text(self.input_shape)}"
        )
        if total.left_out:
            whole += f"; in no row: {', '.join(total.left_out)}, of {total.nodes} nodes"
        yield whole
        if total.flops is not None or self.sort in ("params", "memory"):
            _, what = _COUNTED.get(self.sort, _COUNTED["flops"])
            yield f"share: of all {what}; a block's share includes its parts"


@dataclass(frozen=True, slots=True)
class LayersRequest:
    """Layers: options that say which layers hookcli lists, and in which order."""

    layers: Layers = ("all",)
    exclude: Exclude = ()
    operations: Annotated[
        bool, Flag("--ops", "Also list operations between modules, such as additions.")
    ] = False
    sort: Annotated[
        Sort, Flag("--sort BY", "Order of the rows: calls, flops, params, memory or name.")
    ] = "calls"


@verb(*TABLES)
def layers(
    call: VerbCall,
    model: Annotated[
        ModelRequest,
        Without("weights seed device dtype resize interpolation categories"),
        Without("output_key mode like provider"),
    ],
    request: LayersRequest,
) -> LayerSurvey:
    """List a model's layers: shapes, parameters, cost, and traps for hooks.

    A trap is a reason why a simple hook on a layer would mislead. hookcli loads no weights and
    computes no values, but runs a file such as net.onnx once. A multiply-add counts as two FLOPs.

    Examples:
        hookcli layers resnet34
        hookcli layers resnet34 --layers 'layer1.0' --ops
        hookcli layers vit_b_16 --layers attention --format csv
        hookcli layers convnext_tiny --layers leaf --sort flops
    """
    from hookcli.passes.survey import survey_layers
    from hookcli.plan.check import check_file_options

    check_file_options(model)
    with call.listener.no_data():
        found, input_shape = survey_layers(
            model, request.layers, request.exclude, operations=request.operations
        )
    call.listener.listed()
    for note in found.notes:
        call.warn(note)
    return LayerSurvey(
        notes=call.notes,
        model=model.name,
        input_shape=input_shape,
        total=found.total,
        rows=_sort(found, request.sort),
        sort=request.sort,
    )


def _flops_text(cost: SurveyRow | ModelTotal) -> str:
    if cost.counted_flops is None:
        return ""
    if cost.flops is None and not cost.counted_flops:
        return "not counted"
    least = "at least " if cost.flops is None else ""
    return f"{least}{cost.counted_flops / 1e6:,.1f}"


def _sort(found: Survey, sort: Sort) -> tuple[SurveyRow, ...]:
    number, _ = _COUNTED.get(sort, _COUNTED["flops"])
    total = getattr(found.total, number)
    rows = [*found.rows]
    if total:
        values = [getattr(row, number) for row in rows]
        shares = [None if value is None else round(value / total, 6) for value in values]
        rows = [replace(row, share=share) for row, share in zip(rows, shares, strict=True)]
    if sort == "name":
        rows.sort(key=lambda row: natural_key(row.call_id))
    elif sort == "flops":  # a row that is not counted may be the largest
        rows.sort(key=lambda row: (_flops_text(row) != "not counted", -(row.counted_flops or 0)))
    elif sort in _COUNTED:
        rows.sort(key=lambda row: 1.0 if row.share is None else -row.share)
    return tuple(rows)
