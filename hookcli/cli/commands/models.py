"""The command ``hookcli models``."""

from __future__ import annotations

from typing import Annotated

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.cli.output.documents import ModelsDocument
from hookcli.cli.output.table import Look, print_listing
from hookcli.outside.flags import Flag
from hookcli.records.rows import CatalogEntry

_LOOK = Look(
    kind=CatalogEntry,
    columns={
        "model": lambda entry: entry.name,
        "task": lambda entry: entry.task,
        "params": lambda entry: "" if entry.params is None else f"{entry.params:,}",
        "GFLOPs": lambda entry: "" if entry.gflops is None else f"{entry.gflops:.2f}",
        "MB": lambda entry: "" if entry.file_mb is None else f"{entry.file_mb:.1f}",
        "cached": lambda entry: ", ".join(entry.cached) or "no",
        "weights": lambda entry: ", ".join(entry.weights),
    },
    words=("model", "task", "cached", "weights"),
    fold=("model", "weights"),
    drop=("weights", "task", "cached", "MB", "GFLOPs"),
)


@command
def models(
    pattern: Annotated[
        str, Flag("pattern GLOB", "Names that match: 'resnet*'.  [default: all]")
    ] = "*",
    output_format: options.Format = "table",
) -> None:
    """List torchvision's models, their weights, and whether these are in the local cache.

    A multiply-add counts as two FLOPs.

    Examples:
        hookcli models
        hookcli models 'resnet*'
    """
    from hookcli.cli.completion import save_model_names
    from hookcli.models.sources import list_catalog

    entries = list_catalog(pattern)
    save_model_names()
    document = ModelsDocument(models=entries)
    print_listing(_LOOK, entries, document, output_format=output_format)
