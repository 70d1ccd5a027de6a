"""Pass on a verb's messages; in Python, issue its warnings and draw progress bars."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hookcli.errors import HookcliWarning
from hookcli.run.listener import ProgressListener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

Level: TypeAlias = Literal["plan", "note", "warning", "answer", "failure"]

_EVERY = 0.2  # seconds between two steps of a bar
_CELLS = 30  # of a bar
_OWN = ("hookcli.", "contextlib")  # the modules between the user's line and a warning


@dataclass(frozen=True, slots=True)
class Note:
    """A message to the user, in which options have the names of Python keywords.

    A plan says what hookcli will do, a note gives further information, and a warning says why the
    result may be wrong or incomplete. An answer is what the user asked for, such as the plan of a
    dry run. A failure says why the exit code is 7.
    """

    level: Level
    text: str


class Progress(ProgressListener):
    """Counts the finished steps of a ``with`` block in ``done``; subclasses also show a bar."""

    done = 0

    def chunk_done(self, done: int, skipped: int = 0) -> None:  # noqa: ARG002
        self.done = done

    def step(self, steps: int = 1) -> None:
        self.chunk_done(self.done + steps)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing; subclasses remove their bar."""


class VerbListener:
    """Receives the messages and the progress of a verb that a Python program calls.

    It issues warnings with ``warnings.warn``, ignores other messages, and shows progress bars.
    """

    writes = False  # whether a verb without ``out`` writes into its usual folder
    wants_rows = True  # whether somebody reads all rows; a table alone needs few
    # Whether other processes may read images by default; most systems run the program again in them
    starts_workers = False

    def __init__(self, to_words: Callable[[str], str] = str) -> None:
        self.to_words = to_words  # replaces names of fields and options by keywords

    @property
    def shows_downloads(self) -> bool:
        return _is_watched()

    def hear(self, note: Note) -> None:
        if note.level == "warning":
            warnings.warn(note.text, HookcliWarning, stacklevel=_depth())

    def begin(self) -> None:
        """The verb calls this before it runs a model."""

    def end(self) -> None:
        """The verb calls this when it knows the result; later messages belong below the result."""

    def listed(self, source: str | None = None) -> None:
        """The verb calls this when the models of ``source`` are known; None means torchvision."""

    def count(self, total: int, noun: str, *, is_long: bool) -> Progress:
        """Return a progress bar for ``total`` images or other steps; hidden unless ``is_long``."""
        if not (is_long and _is_watched()):
            return Progress()
        return (_NotebookBar if _is_notebook() else _Bar)(total, noun)

    def no_data(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Bar(Progress):
    def __init__(self, total: int, noun: str) -> None:
        self._total, self._noun, self._last = total, noun, time.monotonic()
        self._is_drawn = False

    def chunk_done(self, done: int, skipped: int = 0) -> None:
        super().chunk_done(done, skipped)
        if time.monotonic() - self._last >= _EVERY:
            self._last, self._is_drawn = time.monotonic(), True
            full = "█" * (_CELLS * done // max(1, self._total))
            self._draw(f"{full:·<{_CELLS}} {done:,} of {self._total:,} {self._noun}")

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            self._draw("")

    def _draw(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError, UnicodeError):  # a closed or ASCII stream
            sys.stderr.write(f"\r{line:<79}\r" if not line else f"\r{line:<79}")
            sys.stderr.flush()


class _NotebookBar(_Bar):
    """A progress bar in a notebook, cleared at the end so that the notebook is saved without it."""

    _output: Any = None

    def _draw(self, line: str) -> None:
        data = {"text/html": f"<code>{line}</code>" if line else "", "text/plain": line}
        if self._output is None:
            self._output = sys.modules["IPython.display"].display(data, raw=True, display_id=True)
        else:
            self._output.update(data, raw=True)


def _is_watched() -> bool:
    return _is_notebook() or bool(sys.stderr and sys.stderr.isatty())


def _is_notebook() -> bool:
    # Any program may have imported ``ipykernel``.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", object)()
    return hasattr(shell, "kernel")


def _depth() -> int:
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame, depth = frame.f_back, depth + 1
    return depth


@dataclass(frozen=True, slots=True)
class VerbCall:
    verb: str
    given: Collection[str]  # the names of the keywords that the user gave
    listener: VerbListener
    notes: list[Note] = field(default_factory=list)  # so far, for the outcome

    def _tell(self, level: Level, text: str) -> None:
        note = Note(level, self.listener.to_words(text))
        self.notes.append(note)
        self.listener.hear(note)

    plan = partialmethod(_tell, "plan")
    say = partialmethod(_tell, "note")
    warn = partialmethod(_tell, "warning")
    answer = partialmethod(_tell, "answer")
    fail = partialmethod(_tell, "failure")
