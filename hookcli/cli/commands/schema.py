"""``hookcli schema``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookcli.cli.output import console
from hookcli.documents import PARTS
from hookcli.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator


def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="inspect and other commands; inspect.jsonl for its lines; or a file of a run: "
            "run.json, manifest.json, report.json, index.json.  [default: all]",
        ),
    ] = "",
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a command prints, or of a file of a run.

    Examples:
        hookcli schema
        hookcli schema inspect.jsonl
    """
    from hookcli.cli.output.schema import make_schema

    whole = make_schema()
    console.print_data(json.dumps(_cut_out(whole, name) if name else whole, indent=1) + "\n")


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
        "$ref": PARTS + name,
        "$defs": {part: whole["$defs"][part] for part in whole["$defs"] if part in needed},
    }


def _list_parts(value: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from _list_parts(each)
        elif isinstance(each, str) and each.startswith(PARTS):
            yield _name_of(each)


def _name_of(reference: str) -> str:
    return reference.removeprefix(PARTS)
