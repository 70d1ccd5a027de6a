"""The JSON Schema of all documents, made from their types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hookcli.analysis import folder
from hookcli.analysis.map import MapDocument, MapRow
from hookcli.analysis.places import PlacesDocument, PlacesRow
from hookcli.analysis.probe import ProbeDocument, ProbeRow
from hookcli.analysis.similarity import PairRow, SimilarityDocument
from hookcli.distance.comparison import DiffRow
from hookcli.errors import RequestError
from hookcli.outside.documents import PARTS, Document, describe_types
from hookcli.records.golden import GoldenFile
from hookcli.records.report import Manifest, ReportDocument, RequestFile
from hookcli.records.rows import CatalogEntry, ChannelRow, FileRow, LayerRow, SurveyRow
from hookcli.records.tensor_index import TensorIndex
from hookcli.store.places import names
from hookcli.verbs import documents as printed
from hookcli.verbs.comparison import ComparisonDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = "urn:hookcli:output"
# What each command prints with --format json, and the rows of --format jsonl.
_PRINTED: dict[str, tuple[type[Document], type[DataclassInstance]]] = {
    "inspect": (printed.RunDocument, LayerRow),
    "gradients": (printed.RunDocument, LayerRow),
    "ablate": (printed.AblationDocument, ChannelRow),
    "diff": (ComparisonDocument, DiffRow),
    "compare": (ComparisonDocument, DiffRow),
    "layers": (printed.LayersDocument, SurveyRow),
    "models": (printed.ModelsDocument, CatalogEntry),
    "places": (PlacesDocument, PlacesRow),
    "map": (MapDocument, MapRow),
    "probe": (ProbeDocument, ProbeRow),
    "similarity": (SimilarityDocument, PairRow),
    "report": (printed.PageDocument, FileRow),
    "export": (printed.ExportDocument, FileRow),
}
_LINE = ".jsonl"
_FILES: dict[str, type[Document]] = {
    "golden": GoldenFile,
    names.REQUEST: RequestFile,
    names.MANIFEST: Manifest,
    names.DOCUMENT: ReportDocument,
    names.INDEX.rpartition("/")[2]: TensorIndex,
    folder.LIST: folder.AnalysisList,
}
_KINDS: dict[str, type[DataclassInstance]] = {
    **{name: document for name, (document, _) in _PRINTED.items()},
    **{name + _LINE: row for name, (_, row) in _PRINTED.items()},
    "error": printed.ErrorDocument,
    **_FILES,
}
_SIDES = {
    "inspect.jsonl": ["output", "input"],
    "gradients.jsonl": ["grad_output", "grad_input", "param"],
}


def make_schema(name: str = "") -> dict[str, Any]:
    """Return the JSON Schema of the named document, or of all documents if no name is given."""
    if not name:
        return {
            "$schema": _DIALECT,
            "$id": _ID,
            "title": "What hookcli prints and writes as JSON",
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
    parts = describe_types([Document, *kinds.values()])
    found = {name: _narrow(name, parts[kind.__name__], parts) for name, kind in kinds.items()}
    text = json.dumps([found, parts])
    return found | {name: part for name, part in parts.items() if f'"{PARTS}{name}"' in text}


def _narrow(name: str, part: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Allow only this document's command and sides of calls; a jsonl line has the version, too."""
    fields, required = part["properties"], part["required"]
    if name.endswith(_LINE):
        version = parts[Document.__name__]
        fields, required = version["properties"] | fields, version["required"] + required
    if name in _PRINTED and "command" in fields:
        words = [{"const": "hookcli"}, {"const": name}]
        fields = fields | {"command": fields["command"] | {"prefixItems": words}}
    if name in _SIDES:
        fields = fields | {"side": fields["side"] | {"enum": _SIDES[name]}}
    return {**part, "properties": fields, "required": required}
