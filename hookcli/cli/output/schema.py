"""The JSON Schema of all documents, made from their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookcli.cli.output.documents import (
    AblationDocument,
    ComparisonDocument,
    ExportDocument,
    LayersDocument,
    ModelsDocument,
    PageDocument,
    RunDocument,
)
from hookcli.distance.comparison import DiffRow
from hookcli.documents import PARTS, Document, describe_types
from hookcli.records.golden import GoldenFile
from hookcli.records.report import Manifest, ReportDocument, RequestFile
from hookcli.records.rows import CatalogEntry, ChannelRow, FileRow, LayerRow, SurveyRow
from hookcli.store.places import names
from hookcli.store.tensor_index import TensorIndex

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# What each command prints: the document of --format json, and the row of --format jsonl.
_PRINTED: dict[str, tuple[type[Document], type[DataclassInstance]]] = {
    "inspect": (RunDocument, LayerRow),
    "gradients": (RunDocument, LayerRow),
    "ablate": (AblationDocument, ChannelRow),
    "diff": (ComparisonDocument, DiffRow),
    "compare": (ComparisonDocument, DiffRow),
    "layers": (LayersDocument, SurveyRow),
    "models": (ModelsDocument, CatalogEntry),
    "report": (PageDocument, FileRow),
    "export": (ExportDocument, FileRow),
}
_FILES: dict[str, type[Document]] = {
    "golden": GoldenFile,
    names.REQUEST: RequestFile,
    names.MANIFEST: Manifest,
    names.DOCUMENT: ReportDocument,
    names.INDEX.rpartition("/")[2]: TensorIndex,
}
_SIDES = {"inspect": ["output", "input"], "gradients": ["grad_output", "grad_input", "param"]}


def make_schema() -> dict[str, Any]:
    """Return the JSON Schema of what commands print and leave, each document in ``anyOf``."""
    documents = _FILES | {name: document for name, (document, _) in _PRINTED.items()}
    kinds = (*documents.values(), Document, *(row for _, row in _PRINTED.values()))
    parts = describe_types(kinds)
    found = {name: parts[kind.__name__] for name, kind in documents.items()}
    found |= {name: _of_command(found[name], name) for name in _PRINTED}
    for name, (_, row) in _PRINTED.items():
        found[f"{name}.jsonl"] = _as_line(name, parts[Document.__name__], parts[row.__name__])
    held = parts.keys() - {Document.__name__, *(kind.__name__ for kind in documents.values())}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:hookcli:output",
        "title": "What hookcli prints and leaves as JSON",
        "description": "Documents of --format json, lines of --format jsonl (NAME.jsonl), and JSON "
        "files of a run folder. hookcli schema NAME prints one of them alone.",
        "anyOf": [{"$ref": f"{PARTS}{name}"} for name in found],
        "$defs": found | {name: parts[name] for name in parts if name in held},
    }


def _of_command(part: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of a document whose command, if it has one, is that of this name."""
    words = [{"const": "hookcli"}, {"const": name}]
    return (
        _narrowed(part, "command", prefixItems=words) if "command" in part["properties"] else part
    )


def _as_line(name: str, document: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a line of JSON: a row with the version of its form."""
    line = {
        **row,
        "description": f"A line of hookcli {name} --format jsonl. {row['description']}",
        "properties": document["properties"] | row["properties"],
        "required": document["required"] + row["required"],
    }
    return _narrowed(line, "side", enum=_SIDES[name]) if name in _SIDES else line


def _narrowed(part: dict[str, Any], field: str, **said: object) -> dict[str, Any]:
    properties = part["properties"]
    return {**part, "properties": {**properties, field: properties[field] | said}}
