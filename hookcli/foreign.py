"""Code that is not ours: whatever it raises becomes our error, and what it changes of the process is changed back.

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
_BUILT = "it runs when the model is built; try it in Python first"


class TheirDirectory:
    """A ``with`` block around code of others, after which the working directory is what it was before.

    Entered again, it begins in the directory that the code chose: a file may call ``os.chdir`` when it
    is imported, and its factory may read files from there.
    """

    def __init__(self) -> None:
        self._ours: str | None = None
        self._theirs: str | None = None

    def __enter__(self) -> None:
        self._ours = _where()
        if self._theirs is not None:
            _go(self._theirs)

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = _where()
        if self._ours is not None and now != self._ours:
            self._theirs = now
            _go(self._ours)


class ForeignCode:
    """A ``with`` block around code of others, which may raise anything: it becomes a ModelError.

    Ctrl-C stays an interrupt, and an error of ours stays as it is. The working directory is kept, and
    a recursion limit beyond what the stack of the process holds is lowered again.
    """

    def __init__(
        self, what: str, directory: TheirDirectory | None = None, hint: str = _BUILT
    ) -> None:
        """``what`` begins the message; ``directory`` is shared with other blocks of the same code."""
        self._what, self._hint = what, hint
        self._directory = directory or TheirDirectory()
        self._limit = 0

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        self._directory.__enter__()

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
        self._directory.__exit__(kind, error, trace)
        if error is not None and not isinstance(error, (HookcliError, KeyboardInterrupt)):
            raise ModelError(
                f"{self._what} raised {type(error).__name__}: {first_line(error)}",
                self._hint,
            ) from error


def ask(thing: object, name: str, default: Any = None) -> Any:
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


def _go(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise ModelError(
            f"cannot go back to the working directory {directory!r}: {error.strerror or error}",
            "code of the model left it, and it is gone or closed; start again in another folder",
        ) from error
