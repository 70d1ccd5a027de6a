"""Everything that reaches the terminal: data on stdout, talk on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import typer

from hookcli import escape
from hookcli.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

_FOLDED = 32
_WIDE = 400  # without a terminal nothing is cut


def print_data(text: str) -> None:
    """Write to stdout; a reader that has closed the pipe is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        _forget_stdout()
        raise OutputError(f"cannot write to stdout: {error.strerror}") from error


def close_stdout() -> None:
    """Flush stdout without complaint, so that the interpreter does not complain at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _forget_stdout()


def say(text: str, *, quiet: bool = False) -> None:
    """Progress and plans, on stderr."""
    if not quiet:
        typer.secho(escape.for_terminal(text), err=True, dim=True)


def warn(text: str) -> None:
    """A warning, on stderr, whatever ``--quiet`` says."""
    typer.secho(f"warning: {escape.for_terminal(text)}", err=True, fg="yellow", bold=True)


def print_error(message: str, hint: str = "") -> None:
    """One line that names the thing, one that says what to type."""
    typer.secho(f"error: {escape.for_terminal(message)}", err=True, fg="red", bold=True)
    if hint:
        typer.secho(f"hint: {escape.for_terminal(hint)}", err=True)


def text_width() -> int:
    """Columns to fill: ``COLUMNS``, the terminal's, or plenty when stdout is no terminal."""
    with contextlib.suppress(KeyError, ValueError):
        return max(20, int(os.environ["COLUMNS"]))
    if sys.stdout.isatty():
        with contextlib.suppress(OSError):
            return os.get_terminal_size(sys.stdout.fileno()).columns
    return _WIDE


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: Sequence[str],
    fold: Sequence[str],
    drop: Sequence[str],
) -> None:
    """A table that fits the terminal.

    Args:
        header: the columns.
        rows: their cells, as plain text.
        words: the columns that hold words; the others hold numbers and stand right.
        fold: the columns that wrap when all else does not help.
        drop: the columns that are left out when the terminal is narrow, the first to go first.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    kept = _fitting_columns(header, rows, fold, drop)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    for name in kept:
        table.add_column(
            name,
            justify="left" if name in words else "right",
            no_wrap=name not in fold,
            overflow="fold",
        )
    places = [header.index(name) for name in kept]
    for row in rows:
        table.add_row(*(Text(escape.for_terminal(row[place])) for place in places))
    print_data(_render(table))


def _fitting_columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], fold: Sequence[str], drop: Sequence[str]
) -> list[str]:
    """The columns that have room; one that wraps needs no more than ``_FOLDED``."""
    widths = {}
    for place, name in enumerate(header):
        longest = max([len(name), *(len(row[place]) for row in rows)])
        widths[name] = 3 + (min(longest, _FOLDED) if name in fold else longest)
    kept = list(header)
    for name in drop:
        if sum(widths[each] for each in kept) <= text_width():
            break
        kept.remove(name)
    return kept


def _render(table: Table) -> str:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    console = Console(width=text_width(), force_terminal=terminal, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    return "".join(line.rstrip() + "\n" for line in lines if line.strip())


def _forget_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
