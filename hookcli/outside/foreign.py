"""Run foreign code (not hookcli's own), which may raise any exception or change the process."""
# Only this module and ``passes/call`` catch every exception but Ctrl-C and signals that end the
# process. This module imports no other package.

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from hookcli.errors import HookcliError, ModelError, RequestError, Termination

# Python 3.11 crashes with a segmentation fault if endless recursion reaches the end of the stack
# before the recursion limit. A stack of 8 MB is full at 30,000 calls of modules, properties or
# __getattr__, but not at 8,000.
_DEEPEST = 8_000
ENDS = (KeyboardInterrupt, Termination)  # these end the process; they are never foreign errors
_BUILT = "it runs when the model is built; try it in Python first"


class Surroundings:
    """Restores the working directory and the standard streams at the end of a ``with`` block.

    A second block of the same object starts in the directory that the foreign code chose in the
    first block: a Python file may call ``os.chdir`` when it is imported, and read files later.
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

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        sys.stdout, sys.stderr = self._streams
        now = _working_directory()
        if self._directory_before is not None and now != self._directory_before:
            self._directory_chosen = now
            _change_directory(self._directory_before)


class Forgiveness:
    """Suppresses exceptions in a ``with`` block, even ``SystemExit``, but not Ctrl-C.

    Put only the access to a foreign object into the block, which also hides errors of hookcli.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return error is not None and not isinstance(error, ENDS)


class ForeignCode:
    """Turns errors of foreign code in a ``with`` block, even SystemExit, into a ModelError.

    Use it for calls into libraries, too, if they take values that come from files.
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
        """Set the message and hint of ``error``, which replaces an error of the foreign code.

        The message is ``what``, ``verb`` and the foreign error's first line. By default, ``verb``
        is "raised" and the foreign error's type. Foreign errors of the types in ``passes`` are not
        replaced. Several blocks may share ``surroundings``.
        """
        self._what, self._hint, self._verb, self._error = what, hint, verb, error
        self._passes = (HookcliError, *ENDS, *passes)
        self._surroundings = surroundings or Surroundings()
        self._limit = 0

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        self._surroundings.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        most = max(self._limit, _DEEPEST)
        if sys.getrecursionlimit() > most:
            sys.setrecursionlimit(most)
        self._surroundings.__exit__(kind, error, trace)
        if error is not None and not isinstance(error, self._passes):
            verb = self._verb or f"raised {type(error).__name__}"
            raise self._error(f"{self._what} {verb}: {foreign_line(error)}", self._hint) from error


def ask(thing: object, name: str, default: object = None) -> Any:
    with Forgiveness():
        return getattr(thing, name)
    return default


def text_of(error: BaseException) -> str:
    with Forgiveness():
        return str(error).strip()
    return ""


def first_line(error: BaseException) -> str:
    lines = text_of(error).splitlines()
    return lines[0][:200] if lines else type(error).__name__


def foreign_line(error: BaseException) -> str:
    """Return an error's first line, with quotes for backticks, as backticks mark options."""
    return first_line(error).replace("`", "'")


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  may not be UTF-8; called around every forward
    except OSError:
        return None


def _change_directory(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise ModelError(
            f"cannot go back to the working directory {directory!r}: {error.strerror or error}",
            "the model's code left it, and it cannot be entered again; start in a different folder",
        ) from error


def require_package(need: str, module: str, name: str, extra: str) -> None:
    """Raise a RequestError if the Python module ``module`` is not installed.

    The message begins with ``need``, such as "X needs", and the package's ``name``. The hint says
    to install hookcli's ``extra``, or the package itself if ``extra`` is empty.
    """
    if importlib.util.find_spec(module) is None:
        package = f"'hookcli[{extra}]'" if extra else name
        raise RequestError(f"{need} {name}, which is not installed", f"pip install {package}")
