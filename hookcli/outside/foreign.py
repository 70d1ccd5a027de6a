"""Run foreign code (not hookcli's own), which may raise any exception or change the process.

Only this module and ``passes/call`` catch every exception. An exception of foreign code becomes an
error of hookcli (``ForeignCode``) or is suppressed (``Forgiveness``); Ctrl-C and a signal that ends
the process pass through. After ``ForeignCode``, the process has its earlier working directory and
standard streams again, and a recursion limit that the stack can hold.

Standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

from hookcli.errors import HookcliError, ModelError, RequestError, Termination

if TYPE_CHECKING:
    from types import TracebackType

# Python 3.11 crashes with a segmentation fault if endless recursion reaches the end of the stack
# before the recursion limit. A stack of 8 MB is full at 30,000 calls of modules, properties or
# __getattr__, but not at 8,000.
_DEEPEST = 8_000
_STREAMS = (1, 2)
ENDS = (KeyboardInterrupt, Termination)  # these end the process; they are never foreign errors
_BUILT = "it runs when the model is built; try it in Python first"


class Surroundings:
    """A ``with`` block around foreign code that restores the process at the end of the block.

    The block restores the working directory, ``sys.stdout`` and ``sys.stderr``. If the foreign code
    closed file descriptor 1 or 2, the block opens the null device under this number, because the
    next opened file would otherwise get the number.

    If the same object is used for a second block, that block starts in the directory to which the
    foreign code changed in the first block. A Python file may call ``os.chdir`` when it is
    imported, and a function in the file may later read files from that directory.
    """

    def __init__(self) -> None:
        self._directory_before: str | None = None
        self._directory_chosen: str | None = None
        self._streams = sys.stdout, sys.stderr

    def __enter__(self) -> None:
        self._directory_before = _working_directory()
        self._streams = sys.stdout, sys.stderr
        if self._directory_chosen is not None:
            _change_directory(self._directory_chosen)

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout, sys.stderr = self._streams
        for number in _STREAMS:
            _keep_open(number)
        now = _working_directory()
        if self._directory_before is not None and now != self._directory_before:
            self._directory_chosen = now
            _change_directory(self._directory_before)


class Forgiveness:
    """A ``with`` block that suppresses any exception of a foreign object, even ``SystemExit``.

    Ctrl-C and a signal that ends the process pass through. Put only the access to the foreign
    object into the block, because the block would also hide an error in hookcli's own code.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return error is not None and not isinstance(error, ENDS)


class ForeignCode:
    """A ``with`` block that turns any exception of foreign code into a ModelError.

    This is the rule for calls into libraries with values that come from files, too. Even
    ``SystemExit`` becomes a ModelError. Errors of hookcli, Ctrl-C, and a signal that ends the
    process pass through unchanged. At its end, the block restores the process (``Surroundings``),
    and lowers a recursion limit that the foreign code set too high for the stack.
    """

    def __init__(
        self,
        what: str,
        surroundings: Surroundings | None = None,
        hint: str = _BUILT,
        *,
        verb: str = "",
        error: type[ModelError] = ModelError,
        passes: tuple[type[Exception], ...] = (),
    ) -> None:
        """Prepare the block.

        Args:
            what: the subject of the error message, such as the name of a function.
            surroundings: restores the process; several blocks may share the object. None makes a
                new object.
            hint: the hint of the error.
            verb: what the message says of the subject; empty names the class of the exception.
            error: the class of the error.
            passes: the exceptions that pass through.
        """
        self._what, self._hint, self._verb, self._error = what, hint, verb, error
        self._passes = (HookcliError, *ENDS, *passes)
        self._surroundings = surroundings or Surroundings()
        self._limit = 0

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        self._surroundings.__enter__()

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the process, and turn an exception of foreign code into a ModelError."""
        most = max(self._limit, _DEEPEST)
        if sys.getrecursionlimit() > most:
            sys.setrecursionlimit(most)
        self._surroundings.__exit__(kind, error, trace)
        if error is not None and not isinstance(error, self._passes):
            verb = self._verb or f"raised {type(error).__name__}"
            raise self._error(f"{self._what} {verb}: {foreign_line(error)}", self._hint) from error


def ask(thing: object, name: str, default: object = None) -> Any:
    """Return an attribute of a foreign object.

    If the attribute does not exist, or if reading it raises an exception, return ``default``.
    """
    with Forgiveness():
        return getattr(thing, name)
    return default


def text_of(error: BaseException) -> str:
    """Return the text of an error; empty if the error's (foreign) ``__str__`` raises."""
    with Forgiveness():
        return str(error).strip()
    return ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, cut off at 200 characters.

    Messages of torch can have thousands of characters. If the error has no text, return the name of
    the error's class.
    """
    lines = text_of(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__


def foreign_line(error: BaseException) -> str:
    """Return the first line of an error of foreign code, with apostrophes instead of backticks.

    In hookcli's own messages, backticks mark names of parameters that the caller can set.
    """
    return first_line(error).replace("`", "'")


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  may not be UTF-8; called around every forward
    except OSError:
        return None


def _keep_open(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)  # gets the lowest free number
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)


def _change_directory(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise ModelError(
            f"cannot go back to the working directory {directory!r}: {error.strerror or error}",
            "the model's code left it, and it cannot be entered again; start in a different folder",
        ) from error


def require_package(need: str, module: str, name: str, extra: str) -> None:
    """Check that a package is installed; ``need`` says what needs it, and ends in the verb."""
    if importlib.util.find_spec(module) is None:
        package = f"'hookcli[{extra}]'" if extra else name
        raise RequestError(f"{need} {name}, which is not installed", f"pip install {package}")
