"""Everything that reaches the terminal: data on stdout, talk on stderr."""

from __future__ import annotations

import os
import sys

import typer

from hookcli import escape
from hookcli.errors import OutputError


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


def _forget_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
