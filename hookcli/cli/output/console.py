"""Write data to stdout, messages to stderr; handle colour, closed pipes, unencodable characters."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from typing import Any

import typer

from hookcli.cli.output.wording import to_words
from hookcli.errors import OutputError
from hookcli.outside import escape

# Replacements for characters that the encoding of a terminal lacks.
_PLAIN = str.maketrans("─━│┃╸╺█·…–—×“”‘’←→≥≤", "--||--#..--x\"\"''<>><")
FIT = "hookcli.fit"  # the name of the codec error handler that replaces them


def _fit(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    there = error.object[error.start : error.end].translate(_PLAIN)
    return there.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(FIT, _fit)

_is_used = False  # whether data were written to stdout


def begin_data() -> None:
    global _is_used
    _is_used = False


def is_unused() -> bool:
    return not _is_used


def print_data(text: str) -> None:
    """Write a text to stdout, unless the reader has closed the pipe."""
    global _is_used
    _is_used = True
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        _forget_stdout()
        raise OutputError(f"cannot write to stdout: {error.strerror}") from error


def keep_stdout() -> None:
    """Reserve stdout for hookcli's data, and send the output of libraries to stderr from now on."""
    with contextlib.suppress(OSError, ValueError):  # a stream was closed before hookcli started
        stdout = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        sys.stdout = open(stdout, "w", encoding=sys.stdout.encoding)  # noqa: PTH123, SIM115


def is_plain() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def close_stdout() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _forget_stdout()


def say(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        _print_on_stderr(escape.for_terminal(text), dim=True)


def warn(text: str) -> None:
    _print_on_stderr(f"warning: {escape.for_terminal(to_words(text))}", fg="yellow", bold=True)


def print_error(message: str, hint: str = "") -> None:
    _print_on_stderr(f"error: {escape.for_terminal(message)}", fg="red", bold=True)
    if hint:
        _print_on_stderr(f"hint: {escape.for_terminal(hint)}")


def _print_on_stderr(text: str, **style: Any) -> None:
    """Print a line on stderr. Ignore a closed pipe. Reopen a stderr that the user's code closed."""
    if sys.stderr is not None and sys.stderr.closed:
        sys.stderr = open(2, "w", encoding="utf-8", errors=FIT, closefd=False)  # noqa: SIM115
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    text = text.encode(encoding, FIT).decode(encoding)  # Typer may replace the encoding by UTF-8
    try:
        typer.secho(text, err=True, color=False if is_plain() else None, **style)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _forget_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
