"""Rows on stdout, in the format that was asked for."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookcli import escape
from hookcli.cli import console

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

_FOLDED = 32
_WIDE = 400  # without a terminal nothing is cut


@dataclass(frozen=True, slots=True)
class Look:
    """How rows look as a table.

    Attributes:
        header: the columns.
        words: the columns that hold words; the others hold numbers and stand right.
        fold: the columns that wrap when all else does not help.
        drop: the columns that are left out when the terminal is narrow, the first to go first.
    """

    header: tuple[str, ...]
    words: tuple[str, ...]
    fold: tuple[str, ...]
    drop: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows to be shown.

    Attributes:
        kind: the dataclass of the rows; its fields are the columns of the CSV form.
        rows: the facts.
        cells: a row as people read it.
        document: the JSON form.
        caption: lines that stand below the table and its Markdown form.
    """

    kind: type[Any]
    rows: Sequence[Any]
    cells: Callable[[Any], list[str]]
    document: dict[str, Any]
    caption: tuple[str, ...] = ()


def print_listing(listing: Listing, look: Look, output_format: str) -> None:
    """Write the rows to stdout as ``table``, ``json``, ``csv`` or ``md``."""
    from hookcli.sinks import table

    if output_format == "csv":
        console.print_data(table.render_csv(listing.kind, listing.rows))
        return
    if output_format == "json":
        console.print_data(table.render_json(listing.document))
        return
    rows = [listing.cells(row) for row in listing.rows]
    if output_format == "md":
        console.print_data(table.render_markdown(look.header, rows))
        lines = [f"\n{escape.for_markdown(line)}\n" for line in listing.caption]
    else:
        print_table(look, rows)
        lines = [f"{_wrapped(escape.for_terminal(line))}\n" for line in listing.caption]
    console.print_data("".join(lines))


def _wrapped(line: str) -> str:
    """A line that fits the terminal, in several if it must."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line, text_width(), subsequent_indent=f"{indent}    ", break_long_words=False
    )


def text_width() -> int:
    """Columns to fill: ``COLUMNS``, the terminal's, or plenty when stdout is no terminal."""
    with contextlib.suppress(KeyError, ValueError):
        return max(20, int(os.environ["COLUMNS"]))
    if sys.stdout.isatty():
        with contextlib.suppress(OSError):
            return os.get_terminal_size(sys.stdout.fileno()).columns
    return _WIDE


def print_table(look: Look, rows: Sequence[Sequence[str]]) -> None:
    """A table that fits the terminal; the cells are plain text."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    kept = _fitting_columns(look, rows)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in kept:
        table.add_column(
            name,
            justify="left" if name in look.words else "right",
            no_wrap=name not in look.fold,
            overflow="fold",
        )
    places = [look.header.index(name) for name in kept]
    for row in rows:
        table.add_row(*(Text(escape.for_terminal(row[place])) for place in places))
    console.print_data(_render(table))


def _fitting_columns(look: Look, rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns that have room; one that wraps needs no more than ``_FOLDED``."""
    widths = {}
    for place, name in enumerate(look.header):
        longest = max([len(name), *(len(row[place]) for row in rows)])
        widths[name] = 3 + (min(longest, _FOLDED) if name in look.fold else longest)
    kept = list(look.header)
    for name in look.drop:
        if sum(widths[each] for each in kept) <= text_width():
            break
        kept.remove(name)
    return kept


def _render(table: Table) -> str:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    terminal_console = Console(
        file=io.StringIO(),
        width=text_width(),
        force_terminal=terminal,
        highlight=False,
        markup=False,
    )
    with terminal_console.capture() as captured:
        terminal_console.print(table)
    lines = captured.get().splitlines()
    return "".join(line.rstrip() + "\n" for line in lines if line.strip())
