"""``hookcli layers``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.cli.output.documents import LayersDocument
from hookcli.cli.output.table import Look, print_listing
from hookcli.config import Exclude, Layers, ModelArguments, ModelName, ModelRequest, Size
from hookcli.outside.flags import Flag
from hookcli.records.rows import SurveyRow
from hookcli.records.text import shape_text

if TYPE_CHECKING:
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
        "MFLOPs": lambda row: "" if row.flops is None else f"{row.flops / 1e6:,.1f}",
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
# The number that rows are sorted by, and of which they have a share.
_SORTED_BY: dict[Sort, str] = {"flops": "flops", "params": "params", "memory": "output_mb"}


@command
def layers(
    model: ModelName,
    layers: Layers = ("all",),
    exclude: Exclude = (),
    ops: Annotated[
        bool,
        Flag("--ops", "Also list operations between modules, such as additions.", panel="Layers"),
    ] = False,
    sort: Annotated[
        Sort,
        Flag(
            "--sort BY", "Order of the rows: calls, flops, params, memory or name.", panel="Layers"
        ),
    ] = "calls",
    size: Size = None,
    model_arg: ModelArguments = (),
    output_format: options.Format = "table",
) -> None:
    """List a model's layers: shapes, parameters, cost, and the traps they set for hooks.

    Loads no weights and computes no values. A multiply-add counts as two FLOPs.

    Examples:
        hookcli layers resnet34
        hookcli layers resnet34 --layers 'layer1.0' --ops
        hookcli layers vit_b_16 --layers attention --format csv
        hookcli layers convnext_tiny --layers leaf --sort flops
    """
    from hookcli.cli.completion import save_model_names
    from hookcli.passes.survey import survey_layers

    request = ModelRequest(model, size=size, arguments=model_arg)
    with console.no_data():
        found, input_shape = survey_layers(request, layers, exclude, operations=ops)
    rows = _sorted(_with_shares(found, sort), sort)
    save_model_names()
    document = LayersDocument(
        model=model, input_shape=input_shape, total=found.total, layers=tuple(rows)
    )
    caption = _caption(found.total, shape_text(input_shape), sort)
    print_listing(_LOOK, rows, document, output_format, caption)


def _with_shares(found: Survey, sort: Sort) -> list[SurveyRow]:
    """Return the rows with their shares of the model's total."""
    number = _SORTED_BY.get(sort, "flops")
    total = getattr(found.total, number)
    return [
        row
        if total == 0 or getattr(row, number) is None
        else replace(row, share=round(getattr(row, number) / total, 6))
        for row in found.rows
    ]


def _sorted(rows: list[SurveyRow], sort: Sort) -> list[SurveyRow]:
    """Return the rows in the order that was asked for, the largest first."""
    if sort == "calls":
        return rows
    if sort == "name":
        return sorted(rows, key=lambda row: row.call_id)
    return sorted(rows, key=lambda row: -1.0 if row.share is None else row.share, reverse=True)


def _caption(total: ModelTotal, input_shape: str, sort: Sort) -> tuple[str, ...]:
    what = {"params": "parameters", "memory": "MB"}.get(sort, "FLOPs")
    whole = (
        f"total: {total.params:,} parameters, {total.flops / 1e6:,.1f} MFLOPs and "
        f"{total.output_mb:,.2f} MB of outputs of leaf layers, for an input of {input_shape}"
    )
    return whole, f"share: of all {what}; that of a block holds those of its parts"
