"""``hookcli layers``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hookcli.cli import options, parse
from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.cli.output.table import Listing, Look, print_listing
from hookcli.config import ModelRequest
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from hookcli.passes.survey import SurveyRow

_LOOK = Look(
    header=("#", "call", "type", "output", "layout", "params", "MB", "MFLOPs", "calls", "traps"),
    words=("call", "type", "output", "layout", "traps"),
    fold=("call", "traps"),
    drop=("MB", "layout", "calls", "type", "MFLOPs", "params"),
)


@dataclass(frozen=True, slots=True)
class ListedOptions:
    """Layers: which modules and operations are listed."""

    layers: options.Layers = ("all",)
    exclude: options.Exclude = ()
    ops: Annotated[
        bool,
        typer.Option(
            "--ops",
            help="Also list operations between modules, such as additions.",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """Model: what its shapes depend on."""

    size: options.Size = None
    model_arg: options.ModelArg = ()


@command
def layers(
    model: options.Model,
    listed: ListedOptions,
    shape: ShapeOptions,
    output_format: options.Format = "table",
) -> None:
    """List a model's layers: shapes, parameters, cost, and the traps they set for hooks.

    Loads no weights and computes no values. A multiply-add counts as two FLOPs.

    Examples:
        hookcli layers resnet34
        hookcli layers resnet34 --layers 'layer1.0' --ops
        hookcli layers vit_b_16 --layers attention --format csv
    """
    from hookcli.cli.completion import save_model_names
    from hookcli.hooks.filter import select_layers
    from hookcli.hooks.operation_filter import add_operations
    from hookcli.models.load import build_skeleton
    from hookcli.passes.find_operations import find_named_operations
    from hookcli.passes.survey import SurveyRow, survey

    request = ModelRequest(
        model, size=shape.size, arguments=parse.read_model_arguments(shape.model_arg)
    )
    with console.no_data():
        loaded = build_skeleton(request)
        every = ("re:op:",) * listed.ops
        operations = find_named_operations(loaded, listed.layers, listed.exclude, every)
        chosen = select_layers(loaded.module, listed.layers, listed.exclude, operations)
        if listed.ops:
            chosen = add_operations(chosen, operations)
        rows = survey(loaded.module, chosen, loaded.info.input_shape, loaded.feed, operations)
    save_model_names()
    document: dict[str, object] = {
        "model": model,
        "input_shape": loaded.info.input_shape,
        "layers": rows,
    }
    print_listing(Listing(SurveyRow, rows, _cells, document), _LOOK, output_format)


def _cells(row: SurveyRow) -> list[str]:
    shape = "" if row.shape is None else shape_text(row.shape)
    return [
        "" if row.order is None else str(row.order),
        row.call_id,
        row.module_type,
        shape,
        row.layout,
        f"{row.params:,}",
        "" if row.output_mb is None else f"{row.output_mb:.2f}",
        "" if row.flops is None else f"{row.flops / 1e6:,.1f}",
        str(row.calls),
        "; ".join(row.traps),
    ]
