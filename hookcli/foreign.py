"""Code that is not ours: whatever it raises becomes our error, and the process is put back where it was.

That is its working directory, its standard streams, and a recursion limit that its stack cannot hold.

Standard library only.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from hookcli.errors import Forgiven, HookcliError, ModelError, first_line

if TYPE_CHECKING:
    from types import TracebackType

# Python 3.11 ends by a segmentation fault where endless recursion meets the end of the stack before
# the limit: with 8 MB at 30,000 calls of modules, properties or __getattr__, and not yet at 8,000.
_DEEPEST = 8_000
_STREAMS = (1, 2)
_BUILT = "it runs when the model is built; try it in Python first"


class Surroundings:
    """A ``with`` block around code of others, after which the process is where it was before.

    That is: in the same working directory, with the same ``sys.stdout`` and ``sys.stderr``, and with
    something open under their numbers, which would else be given to the next file that is opened.

    Entered again, it begins in the directory that the code chose: a file may call ``os.chdir`` when it
    is imported, and its factory may read files from there.
    """

    def __init__(self) -> None:
        self._ours: str | None = None
        self._theirs: str | None = None
        self._streams = sys.stdout, sys.stderr

    def __enter__(self) -> None:
        self._ours = _where()
        self._streams = sys.stdout, sys.stderr
        if self._theirs is not None:
            _go(self._theirs)

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout, sys.stderr = self._streams
        for number in _STREAMS:
            _keep_open(number)
        now = _where()
        if self._ours is not None and now != self._ours:
            self._theirs = now
            _go(self._ours)


class ForeignCode:
    """A ``with`` block around code of others, which may raise anything: it becomes a ModelError.

    Ctrl-C stays an interrupt, and an error of ours stays as it is. The process is put back to where it
    was (``Surroundings``), and a recursion limit beyond what its stack holds is lowered again.
    """

    def __init__(
        self, what: str, surroundings: Surroundings | None = None, hint: str = _BUILT
    ) -> None:
        """``what`` begins the message; ``surroundings`` are shared with other blocks of the same code."""
        self._what, self._hint = what, hint
        self._surroundings = surroundings or Surroundings()
        self._limit = 0

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        self._surroundings.__enter__()

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise ModelError for any error but ours.

        Raises:
            ModelError: the block raised.
        """
        most = max(self._limit, _DEEPEST)
        if sys.getrecursionlimit() > most:
            sys.setrecursionlimit(most)
        self._surroundings.__exit__(kind, error, trace)
        if error is not None and not isinstance(error, (HookcliError, KeyboardInterrupt)):
            raise ModelError(
                f"{self._what} raised {type(error).__name__}: {first_line(error)}",
                self._hint,
            ) from error


def ask(thing: object, name: str, default: object = None) -> Any:
    """An attribute of an object of others; ``default`` where there is none, or where asking for it raises."""
    with Forgiven():
        return getattr(thing, name)
    return default


def _where() -> str | None:
    """The working directory; None where it has been deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  its name may not be UTF-8, and it is asked around every forward
    except OSError:
        return None


def _keep_open(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)  # the lowest number that is free, maybe this one
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)


def _go(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise ModelError(
            f"cannot go back to the working directory {directory!r}: {error.strerror or error}",
            "code of the model left it, and it is gone or closed; start again in another folder",
        ) from error
