"""The options of the command line that no request of the Python API has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from hookcli.config import Theme
from hookcli.outside.flags import Flag

MOST_ROWS = 20  # rows that a table shows by default

Format: TypeAlias = Annotated[
    Literal["table", "json", "jsonl", "csv", "md"],
    Flag("--format FORMAT", "On stdout: table, json, jsonl, csv or md.", panel="Output"),
]
Quiet: TypeAlias = Annotated[
    bool,
    Flag("-q --quiet", "Print only warnings, errors and what --format asks for.", panel="Output"),
]
DryRun: TypeAlias = Annotated[bool, Flag("--dry-run", "Print the plan and stop.", panel="Output")]
PageTheme: TypeAlias = Annotated[
    Theme,
    Flag(
        "--theme dark|light",
        "Background of the pictures; light is for papers.",
        panel="Output",
        needs="--pictures",
    ),
]


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The options that decide what a run prints."""

    output_format: Format = "table"
    quiet: Quiet = False
    time: Annotated[bool, Flag("--time", "Print how long each stage took.", panel="Output")] = False
    dry_run: DryRun = False
