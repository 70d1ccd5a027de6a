"""Define ``hookcli schema``, and list the documents and files that have a JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from hookcli.errors import RequestError
from hookcli.outside.documents import PARTS, Document, describe_types, find_row_type
from hookcli.outside.flags import Flag
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import verb
from hookcli.verbs.outcome import UnwrittenOutcome
from hookcli.verbs.subjects import ANALYSES, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = "urn:hookcli:output"
_LINE = ".jsonl"
_SIDES = {
    "inspect.jsonl": ["output", "input"],
    "gradients.jsonl": ["grad_output", "grad_input", "param"],
}


@dataclass(frozen=True, kw_only=True)
class Schema(UnwrittenOutcome):
    """The result of ``schema``: a JSON Schema, as a dictionary."""

    schema: Mapping[str, Any]
    rows: tuple[()] = ()

    def text(self) -> str:
        return json.dumps(self.schema, indent=1) + "\n"


@verb()
def schema(
    call: VerbCall,
    name: Annotated[
        str,
        Flag(
            "name NAME",
            "inspect and other commands; inspect.jsonl for its lines; or a file of a run: "
            "run.json, manifest.json, report.json, index.json.  [default: all]",
        ),
    ] = "",
) -> Schema:
    """Print the JSON Schema (draft 2020-12) of a command's output, or of a run's file.

    Examples:
        hookcli schema
        hookcli schema inspect.jsonl
    """
    return Schema(notes=call.notes, schema=make_schema(name))


def make_schema(name: str = "") -> dict[str, Any]:
    """Return the JSON Schema of the named document, or of all documents if no name is given."""
    kinds = _list_kinds()
    if not name:
        return {
            "$schema": _DIALECT,
            "$id": _ID,
            "title": "What hookcli prints and writes as JSON",
            "description": "Documents of --format json, lines of --format jsonl (NAME.jsonl), and "
            "JSON files of a run folder. hookcli schema NAME prints one of them alone.",
            "anyOf": [{"$ref": PARTS + each} for each in kinds],
            "$defs": _define(kinds),
        }
    if name not in kinds:
        raise RequestError(f"there is no schema {name!r}", f"there are: {', '.join(kinds)}")
    return {
        "$schema": _DIALECT,
        "$id": f"{_ID}:{name}",
        "$ref": PARTS + name,
        "$defs": _define({name: kinds[name]}),
    }


@cache
def _list_printed() -> dict[str, type[Document]]:
    from hookcli.verbs import documents as printed
    from hookcli.verbs.comparison_outcome import ComparisonDocument

    analyses = {name: import_module(f"hookcli.analysis.{name}") for name in SUBJECTS[ANALYSES]}
    return {
        "inspect": printed.RunDocument,
        "gradients": printed.RunDocument,
        "ablate": printed.AblationDocument,
        "sensitivity": printed.SensitivityDocument,
        "diff": ComparisonDocument,
        "compare": ComparisonDocument,
        "layers": printed.LayersDocument,
        "models": printed.ModelsDocument,
        **{name: getattr(each, f"{name.title()}Document") for name, each in analyses.items()},
        "report": printed.PageDocument,
        "export": printed.ExportDocument,
    }


@cache
def _list_kinds() -> Mapping[str, type[DataclassInstance]]:
    from hookcli.analysis import folder
    from hookcli.records.golden import GoldenFile
    from hookcli.records.report import Manifest, ReportDocument, RequestFile
    from hookcli.records.tensor_index import TensorIndex
    from hookcli.store.locations import names
    from hookcli.verbs.documents import ErrorDocument

    printed = _list_printed()
    return {
        **printed,
        **{name + _LINE: find_row_type(document) for name, document in printed.items()},
        "error": ErrorDocument,
        "golden": GoldenFile,
        names.REQUEST: RequestFile,
        names.MANIFEST: Manifest,
        names.DOCUMENT: ReportDocument,
        names.INDEX.rpartition("/")[2]: TensorIndex,
        names.ANALYSIS: folder.AnalysisList,
    }


def _define(kinds: Mapping[str, type[DataclassInstance]]) -> dict[str, dict[str, Any]]:
    parts = describe_types([Document, *kinds.values()])
    found = {name: _narrow(name, parts[kind.__name__], parts) for name, kind in kinds.items()}
    text = json.dumps([found, parts])
    return found | {name: part for name, part in parts.items() if f'"{PARTS}{name}"' in text}


def _narrow(name: str, part: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return schema ``part`` with only the values that document ``name`` can have."""
    # The schema of a line, such as ``inspect.jsonl``, also gets the field of the format's version.
    fields, required = part["properties"], part["required"]
    if name.endswith(_LINE):
        version = parts[Document.__name__]
        fields, required = version["properties"] | fields, version["required"] + required
    if name in _list_printed() and "command" in fields:
        words = [{"const": "hookcli"}, {"const": name}]
        fields = fields | {"command": fields["command"] | {"prefixItems": words}}
    if name in _SIDES:
        fields = fields | {"side": fields["side"] | {"enum": _SIDES[name]}}
    return {**part, "properties": fields, "required": required}
