"""``hookcli models``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hookcli.cli import console, options

if TYPE_CHECKING:
    from hookcli.models import CatalogEntry

_COLUMNS = ("model", "task", "params", "GFLOPs", "MB", "cached", "weights")
_WORDS = ("model", "task", "cached", "weights")


def models(
    pattern: Annotated[str, typer.Argument(metavar="GLOB", help="Which names: 'resnet*'.")] = "*",
    output_format: options.Format = "table",
) -> None:
    """List torchvision's models, their weights, and whether these are in the local cache.

    GFLOPs are two a multiply-add. Example: hookcli models 'resnet*'
    """
    from hookcli.cli.completion import save_model_names
    from hookcli.models import CatalogEntry, list_catalog
    from hookcli.sinks import table

    entries = list_catalog(pattern)
    save_model_names()
    if output_format == "csv":
        console.print_data(table.render_csv(CatalogEntry, entries))
    elif output_format == "json":
        console.print_data(table.render_json({"models": entries}))
    elif output_format == "md":
        console.print_data(table.render_markdown(_COLUMNS, [_cells(entry) for entry in entries]))
    else:
        cells = [_cells(entry) for entry in entries]
        console.print_table(
            _COLUMNS,
            cells,
            words=_WORDS,
            fold=("model", "weights"),
            drop=("weights", "task", "cached"),
        )


def _cells(entry: CatalogEntry) -> list[str]:
    return [
        entry.name,
        entry.task,
        "" if entry.params is None else f"{entry.params:,}",
        "" if entry.gflops is None else f"{entry.gflops:.2f}",
        "" if entry.file_mb is None else f"{entry.file_mb:.1f}",
        ", ".join(entry.cached) or "no",
        ", ".join(entry.weights),
    ]
