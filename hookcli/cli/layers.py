"""``hookcli layers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.cli import console, options
from hookcli.cli.options import DEFAULTS
from hookcli.config import ModelRequest

if TYPE_CHECKING:
    from hookcli.survey import SurveyRow

_COLUMNS = ("#", "call", "type", "output", "layout", "params", "MB", "MFLOPs", "calls", "traps")
_DROP = ("MB", "layout", "calls", "MFLOPs", "params", "type")
_WORDS = ("call", "type", "output", "layout", "traps")


def layers(
    model: options.Model,
    layers: options.Layers = ["all"],  # noqa: B006
    exclude: options.Exclude = [],  # noqa: B006
    size: options.Size = DEFAULTS.model.size,
    model_arg: options.ModelArg = [],  # noqa: B006
    output_format: options.Format = "table",
) -> None:
    """List a model's layers: shapes, parameters, cost, and the traps they set for hooks.

    Loads no weights and computes no values. FLOPs are two a multiply-add.
    Example: hookcli layers vit_b_16 --layers 'attention'
    """
    from hookcli.cli.completion import save_model_names
    from hookcli.layers import select_layers
    from hookcli.models import build_skeleton
    from hookcli.sinks import table
    from hookcli.survey import SurveyRow, survey

    request = ModelRequest(model, size=size, arguments=options.read_model_arguments(model_arg))
    module, info = build_skeleton(request)
    save_model_names()
    rows = survey(module, select_layers(module, layers, exclude), info.input_shape)
    if output_format == "csv":
        console.print_data(table.render_csv(SurveyRow, rows))
    elif output_format == "json":
        console.print_data(
            table.render_json({"model": model, "input_shape": info.input_shape, "layers": rows})
        )
    elif output_format == "md":
        console.print_data(table.render_markdown(_COLUMNS, [_cells(row) for row in rows]))
    else:
        console.print_table(
            _COLUMNS,
            [_cells(row) for row in rows],
            words=_WORDS,
            fold=("call", "traps"),
            drop=_DROP,
        )


def _cells(row: SurveyRow) -> list[str]:
    shape = "" if row.shape is None else "×".join(str(length) for length in row.shape)
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
