"""``hookcli layers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.cli import options, parse
from hookcli.cli.output import console
from hookcli.cli.output.table import Listing, Look, print_listing
from hookcli.config import DEFAULTS, ModelRequest
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from hookcli.passes.survey import SurveyRow

_LOOK = Look(
    header=("#", "call", "type", "output", "layout", "params", "MB", "MFLOPs", "calls", "traps"),
    words=("call", "type", "output", "layout", "traps"),
    fold=("call", "traps"),
    drop=("MB", "layout", "calls", "MFLOPs", "params", "type"),
)


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
    from hookcli.hooks.filter import select_layers
    from hookcli.models.load import build_skeleton
    from hookcli.passes.survey import SurveyRow, survey

    request = ModelRequest(model, size=size, arguments=parse.read_model_arguments(model_arg))
    with console.no_data():
        loaded = build_skeleton(request)
        chosen = select_layers(loaded.module, layers, exclude)
        rows = survey(loaded.module, chosen, loaded.info.input_shape, loaded.feed)
    save_model_names()
    document = {"model": model, "input_shape": loaded.info.input_shape, "layers": rows}
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
