"""Everything that reaches the terminal: data on stdout, talk on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from hookcli import escape
from hookcli.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@contextlib.contextmanager
def no_data() -> Iterator[None]:
    """What is printed inside goes to stderr: code of the user's runs there, and may print."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def keep_stdout() -> None:
    """Give stdout to our data alone: what libraries and programs write there from now on goes to stderr."""
    with contextlib.suppress(OSError, ValueError):  # one of them was closed before we came
        mine = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        sys.stdout = open(mine, "w", encoding=sys.stdout.encoding)  # noqa: PTH123, SIM115


def is_plain() -> bool:
    """Whether the environment asks for text without escape sequences (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def close_stdout() -> None:
    """Flush stdout without complaint, so that the interpreter does not complain at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _forget_stdout()


def say(text: str, *, quiet: bool = False) -> None:
    """Progress and plans, on stderr."""
    if not quiet:
        _talk(escape.for_terminal(text), dim=True)


def warn(text: str) -> None:
    """A warning, on stderr, whatever ``--quiet`` says."""
    _talk(f"warning: {escape.for_terminal(text)}", fg="yellow", bold=True)


def print_error(message: str, hint: str = "") -> None:
    """One line that names the thing, one that says what to type."""
    _talk(f"error: {escape.for_terminal(message)}", fg="red", bold=True)
    if hint:
        _talk(f"hint: {escape.for_terminal(hint)}")


def _talk(text: str, **style: Any) -> None:
    """A line on stderr.

    A reader that has closed it stops the talk, not the run; code of the user's that has closed it does not.
    """
    if sys.stderr is not None and sys.stderr.closed:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        typer.secho(text, err=True, color=False if is_plain() else None, **style)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _forget_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
