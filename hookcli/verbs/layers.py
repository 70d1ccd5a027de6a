"""Define ``hookcli layers``: its options, the columns and sums that it prints, and ``--sort``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from hookcli.config import Exclude, Layers, ModelRequest
from hookcli.errors import RequestError
from hookcli.outside.files import natural_key
from hookcli.outside.flags import Flag
from hookcli.outside.urls import IN_MEMORY
from hookcli.records.rows import SurveyRow
from hookcli.records.text import and_more, count, shape_text
from hookcli.store.locations.names import PAGE
from hookcli.verbs.call import VerbCall
from hookcli.verbs.documents import LayersDocument
from hookcli.verbs.keywords import TABLES, Without, verb
from hookcli.verbs.outcome import Look, Outcome, Page, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hookcli.records.rows import Measurement, ModelTotal
    from hookcli.verbs.call import Note

Sort: TypeAlias = Literal["calls", "flops", "params", "memory", "name", "time"]

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
_MEASURED: dict[str, Callable[[SurveyRow], str]] = {
    **{name: _LOOK.columns[name] for name in ("#", "call", "type")},
    "ms": lambda row: _number(row.seconds, 1e3, 3),
    "own ms": lambda row: _number(row.own_seconds, 1e3, 3),
    "backward ms": lambda row: _number(row.backward_seconds, 1e3, 3),
    "share": _LOOK.columns["share"],
    "MB": lambda row: _number(row.batch_output_mb, 1, 2),
    "workspace": lambda row: _number(row.workspace_mb, 1, 2) if row.workspace_mb else "",
    "total MB": lambda row: _number(row.peak_mb, 1, 1),
    "GFLOP/s": lambda row: _number(row.flops_per_second, 1e-9, 1),
    "bound": lambda row: row.bound,
}
_LOOK_MEASURED = replace(
    _LOOK,
    columns=_MEASURED,
    words=("call", "type", "bound"),
    fold=("call",),
    drop=("workspace", "backward ms", "type", "GFLOP/s", "own ms", "MB", "bound", "total MB"),
    foot=(),
)
_MEASURE = "--measure"
_CLEAR, _SHORT = 0.9, 0.005  # a part of a pass, below which others ran; seconds of a short pass
_MOST_NAMED = 3  # operators in the caption
_MOST_ROWS, _DEPTH = 60, 2  # a longer table shows only the upper part of the tree
# For each order, the column that is shared out, and the name of the unit that it counts.
_COUNTED: dict[Sort, tuple[str, str]] = {
    **dict.fromkeys(("calls", "flops", "name"), ("flops", "FLOPs")),
    "params": ("params", "params"),
    "memory": ("output_mb", "MB"),
    "time": ("seconds", "time"),
}


@dataclass(frozen=True, kw_only=True)
class LayerSurvey(Outcome):
    """The layers of a model, with the parameters, FLOPs and memory of each for one image.

    Attributes:
        measured: what a batch cost on this machine; None without ``measure``. Each row then has
            its part, such as ``own_seconds``.
    """

    notes: Sequence[Note]
    model: str
    input_shape: tuple[int, ...]  # with the leading axis 1
    total: ModelTotal  # the cost of the whole model
    rows: tuple[SurveyRow, ...]
    sort: Sort
    is_tree: bool  # whether the user neither chose nor sorted the rows
    depth: float  # the greatest depth in the table
    measured: Measurement | None = None
    files: Mapping[str, Path | bytes] = field(default_factory=dict)

    def document(self) -> LayersDocument:
        return LayersDocument(
            model=self.model,
            input_shape=self.input_shape,
            total=self.total,
            layers=self.rows,
            measured=self.measured,
        )

    @property
    def page(self) -> Page | None:
        if self.measured is None:
            return None
        return Page(self.files or {PAGE: self._render(self.measured)}, PAGE)

    def _render(self, measured: Measurement) -> bytes:
        from hookcli.render.report.costs_page import render_costs

        title = f"What the layers of {self.model} cost"
        return render_costs(title, self.rows, measured, [*_describe(measured)]).encode()

    def table(self) -> Table[SurveyRow]:
        unit = _count_of(self.sort, self.measured)[1]
        look = _LOOK if self.measured is None else _LOOK_MEASURED
        empty = set()
        if self.total.flops is None:
            empty |= {"MFLOPs"} if self.total.counted_flops is None else set()
            empty |= {"share"} if unit == "FLOPs" else set()
        titles = {"share": f"% of {unit}"}
        shown = {titles.get(n, n): show for n, show in look.columns.items() if n not in empty}
        if self.is_tree:
            shown["call"] = lambda row: f"{'  ' * _depth(row)}{row.call_id}"
        rows = [row for row in self.rows if _depth(row) <= self.depth]
        return Table(look=replace(look, columns=shown), rows=rows, caption=[*self._caption()])

    def _caption(self) -> Iterator[str]:
        if self.measured is not None:
            yield from _describe(self.measured)
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
        if total.flops is not None or self.measured or self.sort in ("params", "memory"):
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
        Sort, Flag("--sort BY", "Order of the leaves: calls, flops, params, memory, name or time.")
    ] = "calls"
    depth: Annotated[
        int | None,
        Flag("--depth N", "Depth of the tree.  [default: 2 for more than 60 rows]", at_least=0),
    ] = None
    measure: Annotated[
        bool, Flag("--measure", "Run the model, and measure each layer's time and memory.")
    ] = False
    batch_size: Annotated[
        int, Flag("--batch-size N", "Images in the batch.", at_least=1, needs=_MEASURE)
    ] = 1
    backward: Annotated[
        bool, Flag("--backward", "Also measure the backward pass.", needs=_MEASURE)
    ] = False


@dataclass(frozen=True, slots=True)
class CostPage:
    """Output: options that say where the page of a measurement is written."""

    out: Annotated[
        Path | None,
        Flag("-o --out DIR", "Write a page with charts into this folder.", needs=_MEASURE),
    ] = None
    overwrite: Annotated[
        bool, Flag("--overwrite", "Replace the page in the folder.", needs="--out")
    ] = False


@verb(*TABLES)
def layers(
    call: VerbCall,
    model: Annotated[
        ModelRequest,
        Without(
            "weights seed resize interpolation preprocess categories output_key mode like provider"
        ),
    ],
    request: LayersRequest,
    output: CostPage,
) -> LayerSurvey:
    """List a model's layers: shapes, parameters, cost, and traps for hooks.

    A trap is a reason why a simple hook on a layer would mislead. hookcli loads no weights and
    computes no values, but runs a file such as net.onnx once. A multiply-add counts as two FLOPs.
    With --measure, hookcli runs the model on random pixels, with random weights.

    Examples:
        hookcli layers resnet34
        hookcli layers resnet34 --layers 'layer1.0' --ops
        hookcli layers vit_b_16 --layers attention --format csv
        hookcli layers convnext_tiny --sort flops
        hookcli layers resnet18 --measure --sort time
    """
    from hookcli.passes.survey import survey_layers
    from hookcli.plan.check import check_file_options

    check_file_options(model)
    _check(call, model, request, output)
    given, depth = {"layers", "sort"} & {*call.given}, request.depth
    forms = ("leaf",) if given == {"sort"} and depth is None else request.layers
    with call.listener.no_data():
        found, input_shape = survey_layers(
            model, forms, request.exclude, operations=request.operations
        )
    call.listener.listed()
    for note in found.notes:
        call.warn(note)
    listed, measured = found.rows, None
    if request.measure:
        listed, measured = _measure(call, model, listed, input_shape, request)
    name, _ = _count_of(request.sort, measured)
    total = _value_of(measured if name == "seconds" else found.total, name)
    ordered = _sort(listed, total, request.sort, name)
    rows = [row for row in ordered if depth is None or _depth(row) <= depth]
    is_long = not given and depth is None and len(rows) > _MOST_ROWS
    survey = LayerSurvey(
        notes=call.notes,
        model=model.name,
        input_shape=input_shape,
        total=found.total,
        rows=tuple(rows),
        sort=request.sort,
        is_tree=not given,
        depth=_DEPTH if is_long else math.inf,
        measured=measured,
    )
    if measured is None or output.out is None:
        return survey
    from hookcli.analysis.folder import make_folder

    with make_folder(output.out, None) as folder:
        folder.write(PAGE, survey._render(measured))
    call.say(f"open first: {output.out / PAGE}")
    return replace(survey, files=folder.files)


def _check(call: VerbCall, model: ModelRequest, request: LayersRequest, output: CostPage) -> None:
    useless = [] if request.measure else sorted({"device", "dtype"} & {*call.given})
    if useless and not model.name.endswith(IN_MEMORY):  # which is on its device anyway
        raise RequestError(f"`{useless[0]}` has no effect without `measure`", "add `measure`")
    if request.sort == "time" and not request.measure:
        raise RequestError("`sort='time'` needs times, and no layer was run", "add `measure`")
    if request.measure and model.is_file:
        what = f"`measure` runs PyTorch models, and {model.name} is a graph without modules to time"
        raise RequestError(what, "name the model that it was exported from")
    if output.out is not None:
        from hookcli.analysis.folder import check_folder

        check_folder(output.out, overwrite=output.overwrite)


def _measure(
    call: VerbCall,
    model: ModelRequest,
    rows: Sequence[SurveyRow],
    shape: tuple[int, ...],
    request: LayersRequest,
) -> tuple[tuple[SurveyRow, ...], Measurement]:
    from hookcli.passes.measure import count_passes, measure_model

    passes = count_passes(backward=request.backward)
    with call.listener.no_data(), call.listener.count(passes, "passes", is_long=True) as bar:
        measured, whole = measure_model(
            model, rows, shape, request.batch_size, backward=request.backward, step=bar.step
        )
    part = whole.unscaled_seconds / max(whole.seconds, 1e-9)
    if part < _CLEAR and whole.seconds > _SHORT:
        call.say(
            f"the machine was busy: without interruptions, the layers took {part:.0%} of a pass; "
            "the rest is spread over them evenly"
        )
    return tuple(measured), whole


def _describe(measured: Measurement) -> Iterator[str]:
    threads = f", {count(measured.threads, 'thread')}" if measured.device == "cpu" else ""
    back = measured.backward_seconds
    behind = "" if back is None else f" and {1e3 * back:,.2f} ms backward"
    yield (
        f"measured: {1e3 * measured.seconds:,.2f} ms forward{behind} for a batch of "
        f"{measured.batch_size}, in {measured.dtype} on {measured.device}{threads}"
    )
    yield (
        f"peak: {measured.peak_mb:,.1f} MB (weights: {measured.weights_mb:,.1f}) in "
        f"{measured.peak_call}, which runs out of memory first"
    )
    yield (
        f"this machine at best: {measured.best_flops_per_second / 1e9:,.0f} GFLOP/s (product of "
        f"matrices), {measured.best_bytes_per_second / 1e9:,.1f} GB/s (copy)"
    )


def _number(value: float | None, factor: float, digits: int) -> str:
    return "" if value is None else f"{value * factor:,.{digits}f}"


def _count_of(sort: Sort, measured: Measurement | None) -> tuple[str, str]:
    is_free = measured is not None and sort in ("calls", "name")
    return _COUNTED["time" if is_free else sort]


def _depth(row: SurveyRow) -> int:
    return len(re.split("[./]", row.module_path)) if row.module_path else 0


def _flops_text(cost: SurveyRow | ModelTotal) -> str:
    if cost.counted_flops is None:
        return ""
    if cost.flops is None and not cost.counted_flops:
        return "not counted"
    least = "at least " if cost.flops is None else ""
    return f"{least}{cost.counted_flops / 1e6:,.1f}"


def _sort(rows: Sequence[SurveyRow], total: float | None, sort: Sort, name: str) -> list[SurveyRow]:
    found = [*rows]
    if total:
        values = [_value_of(row, name) for row in found]
        shares = [None if each is None else min(1.0, round(each / total, 6)) for each in values]
        found = [replace(row, share=share) for row, share in zip(found, shares, strict=True)]
    if sort == "name":
        found.sort(key=lambda row: natural_key(row.call_id))
    elif sort == "flops":  # a row that is not counted may be the largest
        found.sort(key=lambda row: (_flops_text(row) != "not counted", -(row.counted_flops or 0)))
    elif sort != "calls":
        found.sort(key=lambda row: 1.0 if row.share is None else -row.share)
    return found


def _value_of(cost: Any, name: str) -> float | None:
    value: float | None = getattr(cost, name)
    if name == "seconds" and value is not None:
        return value + (cost.backward_seconds or 0.0)
    return value
