"""The JSON Schema of all documents, made from their types."""

from __future__ import annotations

import json
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
from hookcli.errors import RequestError
from hookcli.outside.documents import PARTS, Document, describe_types
from hookcli.records.golden import GoldenFile
from hookcli.records.report import Manifest, ReportDocument, RequestFile
from hookcli.records.rows import CatalogEntry, ChannelRow, FileRow, LayerRow, SurveyRow
from hookcli.store.places import names
from hookcli.store.tensor_index import TensorIndex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = "urn:hookcli:output"
_PRINTED: dict[str, type[Document]] = {
    "inspect": RunDocument,
    "gradients": RunDocument,
    "ablate": AblationDocument,
    "diff": ComparisonDocument,
    "compare": ComparisonDocument,
    "layers": LayersDocument,
    "models": ModelsDocument,
    "report": PageDocument,
    "export": ExportDocument,
}
_ROWS: dict[str, type[DataclassInstance]] = {
    "inspect.jsonl": LayerRow,
    "gradients.jsonl": LayerRow,
    "ablate.jsonl": ChannelRow,
    "diff.jsonl": DiffRow,
    "compare.jsonl": DiffRow,
    "layers.jsonl": SurveyRow,
    "models.jsonl": CatalogEntry,
    "report.jsonl": FileRow,
    "export.jsonl": FileRow,
}
_FILES: dict[str, type[Document]] = {
    "golden": GoldenFile,
    names.REQUEST: RequestFile,
    names.MANIFEST: Manifest,
    names.DOCUMENT: ReportDocument,
    names.INDEX.rpartition("/")[2]: TensorIndex,
}
_KINDS: dict[str, type[DataclassInstance]] = {**_PRINTED, **_ROWS, **_FILES}
_SIDES = {
    "inspect.jsonl": ["output", "input"],
    "gradients.jsonl": ["grad_output", "grad_input", "param"],
}


def make_schema(name: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a document, or of any document if none is named.

    Raises:
        RequestError: there is no document of this name.
    """
    if not name:
        return {
            "$schema": _DIALECT,
            "$id": _ID,
            "title": "What hookcli prints and leaves as JSON",
            "description": "Documents of --format json, lines of --format jsonl (NAME.jsonl), and "
            "JSON files of a run folder. hookcli schema NAME prints one of them alone.",
            "anyOf": [{"$ref": PARTS + each} for each in _KINDS],
            "$defs": _define(_KINDS),
        }
    if name not in _KINDS:
        raise RequestError(f"there is no schema {name!r}", f"there are: {', '.join(_KINDS)}")
    return {
        "$schema": _DIALECT,
        "$id": f"{_ID}:{name}",
        "$ref": PARTS + name,
        "$defs": _define({name: _KINDS[name]}),
    }


def _define(kinds: Mapping[str, type[DataclassInstance]]) -> dict[str, dict[str, Any]]:
    """Return the schemas of documents by their names, and those of the parts that they hold."""
    parts = describe_types([Document, *kinds.values()])
    found = {name: _narrow(name, parts[kind.__name__], parts) for name, kind in kinds.items()}
    text = json.dumps([found, parts])
    return found | {name: part for name, part in parts.items() if f'"{PARTS}{name}"' in text}


def _narrow(name: str, part: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what one command prints, which other commands may print too."""
    fields, required = part["properties"], part["required"]
    if name in _ROWS:
        version = parts[Document.__name__]
        fields, required = version["properties"] | fields, version["required"] + required
    if name in _PRINTED and "command" in fields:
        words = [{"const": "hookcli"}, {"const": name}]
        fields = fields | {"command": fields["command"] | {"prefixItems": words}}
    if name in _SIDES:
        fields = fields | {"side": fields["side"] | {"enum": _SIDES[name]}}
    return {**part, "properties": fields, "required": required}
