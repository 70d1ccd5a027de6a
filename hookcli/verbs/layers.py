"""Define ``hookcli layers``: its options, the columns and sums that it prints, and ``--sort``."""

from __future__ import annotations

import math
import re
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
_MOST_ROWS, _DEPTH = 60, 2  # a longer table shows only the upper part of the tree
# For each order, the column that is shared out, and the name of the unit that it counts.
_COUNTED: dict[Sort, tuple[str, str]] = {
    **dict.fromkeys(("calls", "flops", "name"), ("flops", "FLOPs")),
    "params": ("params", "params"),
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
    is_tree: bool  # whether the user neither chose nor sorted the rows
    depth: float  # the greatest depth in the table

    def document(self) -> LayersDocument:
        return LayersDocument(
            model=self.model, input_shape=self.input_shape, total=self.total, layers=self.rows
        )

    def table(self) -> Table[SurveyRow]:
        empty = set()
        if self.total.flops is None:
            empty |= {"MFLOPs"} if self.total.counted_flops is None else set()
            empty |= {"share"} if _COUNTED[self.sort][1] == "FLOPs" else set()
        titles = {"share": f"% of {_COUNTED[self.sort][1]}"}
        shown = {titles.get(n, n): show for n, show in _LOOK.columns.items() if n not in empty}
        if self.is_tree:
            shown["call"] = lambda row: f"{'  ' * _depth(row)}{row.call_id}"
        rows = [row for row in self.rows if _depth(row) <= self.depth]
        return Table(look=replace(_LOOK, columns=shown), rows=rows, caption=[*self._caption()])

    def _caption(self) -> Iterator[str]:
        total = self.total
        if hidden := [row for row in self.rows if _depth(row) > self.depth]:
            traps = and_more(sum(bool(row.traps) for row in hidden), ", {} of them with traps")
            rest = f"left out: {len(hidden)} rows below depth {self.depth}{traps}"
            yield f"{rest}; `depth={max(map(_depth, hidden))}` shows all"
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
            yield "a block's share includes its parts"


@dataclass(frozen=True, slots=True)
class LayersRequest:
    """Layers: options that say which layers hookcli lists, and in which order."""

    layers: Layers = ("all",)
    exclude: Exclude = ()
    operations: Annotated[
        bool, Flag("--ops", "Also list operations between modules, such as additions.")
    ] = False
    sort: Annotated[
        Sort, Flag("--sort BY", "Order of the leaves: calls, flops, params, memory or name.")
    ] = "calls"
    depth: Annotated[
        int | None,
        Flag("--depth N", "Depth of the tree.  [default: 2 for more than 60 rows]", at_least=0),
    ] = None


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
        hookcli layers convnext_tiny --sort flops
    """
    from hookcli.passes.survey import survey_layers
    from hookcli.plan.check import check_file_options

    check_file_options(model)
    given, depth = {"layers", "sort"} & {*call.given}, request.depth
    forms = ("leaf",) if given == {"sort"} and depth is None else request.layers
    with call.listener.no_data():
        found, input_shape = survey_layers(
            model, forms, request.exclude, operations=request.operations
        )
    call.listener.listed()
    for note in found.notes:
        call.warn(note)
    rows = [row for row in _sort(found, request.sort) if depth is None or _depth(row) <= depth]
    is_long = not given and depth is None and len(rows) > _MOST_ROWS
    return LayerSurvey(
        notes=call.notes,
        model=model.name,
        input_shape=input_shape,
        total=found.total,
        rows=tuple(rows),
        sort=request.sort,
        is_tree=not given,
        depth=_DEPTH if is_long else math.inf,
    )


def _depth(row: SurveyRow) -> int:
    return len(re.split("[./]", row.module_path)) if row.module_path else 0


def _flops_text(cost: SurveyRow | ModelTotal) -> str:
    if cost.counted_flops is None:
        return ""
    if cost.flops is None and not cost.counted_flops:
        return "not counted"
    least = "at least " if cost.flops is None else ""
    return f"{least}{cost.counted_flops / 1e6:,.1f}"


def _sort(found: Survey, sort: Sort) -> list[SurveyRow]:
    number, _ = _COUNTED[sort]
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
    elif sort != "calls":
        rows.sort(key=lambda row: 1.0 if row.share is None else -row.share)
    return rows
