"""``hookcli schema``."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.errors import RequestError
from hookcli.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE = "schemas/output.schema.json"
_PARTS = "#/$defs/"


@command
def schema(
    name: Annotated[
        str,
        Flag(
            "name NAME",
            "inspect and other commands; inspect.jsonl for its lines; or a file of a run: "
            "run.json, manifest.json, report.json, index.json.  [default: all]",
        ),
    ] = "",
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a command prints, or of a file of a run.

    Examples:
        hookcli schema
        hookcli schema inspect.jsonl
    """
    text = (resources.files("hookcli") / _FILE).read_text(encoding="utf-8")
    if name:
        text = json.dumps(_cut_out(json.loads(text), name), indent=1, ensure_ascii=False) + "\n"
    console.print_data(text)


def _cut_out(whole: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of one document, with the definitions that it needs and no others.

    Raises:
        RequestError: there is no schema of this name.
    """
    known = [_name_of(each["$ref"]) for each in whole["anyOf"]]
    if name not in known:
        raise RequestError(f"there is no schema {name!r}", f"there are: {', '.join(known)}")
    needed: dict[str, None] = {}
    waiting = [name]
    while waiting:
        part = waiting.pop()
        needed[part] = None
        waiting += [each for each in _list_parts(whole["$defs"][part]) if each not in needed]
    return {
        "$schema": whole["$schema"],
        "$id": f"{whole['$id']}:{name}",
        "$ref": _PARTS + name,
        "$defs": {part: whole["$defs"][part] for part in whole["$defs"] if part in needed},
    }


def _list_parts(value: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from _list_parts(each)
        elif isinstance(each, str) and each.startswith(_PARTS):
            yield _name_of(each)


def _name_of(reference: str) -> str:
    return reference.removeprefix(_PARTS)
