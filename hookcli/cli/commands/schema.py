"""The command ``hookcli schema``."""

from __future__ import annotations

import json
from typing import Annotated

from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.outside.flags import Flag


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
    """Print the JSON Schema (draft 2020-12) of a command's output, or of a run's file.

    Examples:
        hookcli schema
        hookcli schema inspect.jsonl
    """
    from hookcli.cli.output.schema import make_schema

    console.print_data(json.dumps(make_schema(name), indent=1) + "\n")
