"""Define ``hookcli models``, which lists or downloads models: its options and table columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hookcli.errors import RequestError
from hookcli.outside.flags import Flag
from hookcli.records.rows import CatalogEntry
from hookcli.verbs.call import VerbCall
from hookcli.verbs.documents import ModelsDocument
from hookcli.verbs.keywords import TABLES, verb
from hookcli.verbs.outcome import Look, Table, UnwrittenOutcome

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
    drop=("weights", "task", "cached", "MB", "GFLOPs", "params"),
)


@dataclass(frozen=True, kw_only=True)
class ModelList(UnwrittenOutcome):
    """Models that hookcli can load by name, sorted by name."""

    rows: tuple[CatalogEntry, ...]

    def document(self) -> ModelsDocument:
        return ModelsDocument(models=self.rows)

    def table(self) -> Table[CatalogEntry]:
        return Table(look=_LOOK, rows=self.rows)


@verb(*TABLES)
def models(
    call: VerbCall,
    pattern: Annotated[
        str, Flag("pattern GLOB", "Names that match: 'resnet*'.  [default: all]")
    ] = "*",
    source: Annotated[
        str | None,
        Flag(
            "--source NAME",
            "List what is installed or cached of torchvision, timm, hf, open_clip or smp.",
            panel="Output",
        ),
    ] = None,
    fetch: Annotated[
        bool,
        Flag(
            "--fetch",
            "Download the weights of the model GLOB, of any source, for runs without a network.",
            panel="Output",
        ),
    ] = False,
) -> ModelList:
    """List models, their weights, and which of these are in the local cache.

    Without --source, hookcli lists torchvision's models. A multiply-add counts as two FLOPs. The
    shell completes the names of a source that you have listed once.

    Examples:
        hookcli models
        hookcli models 'resnet*'
        hookcli models --source timm 'vit_small*'
        hookcli models --source hf 'hf-config:dino*'
    """
    from hookcli.networks.catalog import fetch_model, list_catalog

    if fetch and source is not None:
        what = "`fetch` takes a whole name, without `source`"
        raise RequestError(what, "for example timm:resnet18")
    if fetch:
        with call.listener.no_data():
            entry = fetch_model(pattern, progress=call.listener.shows_downloads)
        return ModelList(notes=call.notes, rows=(entry,))
    rows = list_catalog(pattern, source)
    call.listener.listed(source)
    return ModelList(notes=call.notes, rows=rows)
