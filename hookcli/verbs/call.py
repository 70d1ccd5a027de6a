"""The call of a verb: what the user gave, what several verbs say, and who hears it."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hookcli.errors import HookcliWarning
from hookcli.records.images import describe_intensities
from hookcli.records.runs import ASSUMED
from hookcli.records.text import and_more, count
from hookcli.records.uncalled import group_uncalled
from hookcli.run.result import ProgressListener

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from hookcli.records.calls import Uncalled
    from hookcli.records.images import ImageResult, SkippedImage
    from hookcli.records.runs import ModelInfo

Level: TypeAlias = Literal["plan", "note", "warning", "answer", "failure"]

_EVERY = 0.2  # seconds between two steps of a bar
_CELLS = 30  # of a bar
_OWN = ("hookcli.", "contextlib")  # the modules between the user's line and a warning


@dataclass(frozen=True, slots=True)
class Note:
    """A message of a verb, with options in words of Python.

    A plan says what will be done, a note what the user may want to know, and a warning what may
    make the result wrong or incomplete. An answer is what the user asked for, and a failure what
    makes the exit code 7.
    """

    level: Level
    text: str


class Progress(ProgressListener):
    """Counts steps while the ``with`` block lasts; ``done`` are the steps so far."""

    done = 0

    def chunk_done(self, done: int, skipped: int = 0) -> None:  # noqa: ARG002
        """Count steps; ``done`` also counts the ``skipped`` ones."""
        self.done = done

    def step(self, steps: int = 1) -> None:
        """Count further steps."""
        self.chunk_done(self.done + steps)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""


class Listener:
    """A Python program that hears a verb: of warnings as Python warnings, and with a bar.

    ``writes`` is whether a verb without ``out`` writes into its usual folder, and ``wants_rows``
    whether somebody reads all rows; a table alone needs few.
    """

    writes = False
    wants_rows = True

    def __init__(self, to_words: Callable[[str], str] = str) -> None:
        """``to_words`` puts keywords in place of the names that messages have."""
        self.to_words = to_words

    @property
    def shows_downloads(self) -> bool:
        """Whether libraries show the progress of their downloads."""
        return _is_watched()

    def hear(self, note: Note) -> None:
        """Show a message at once, or leave it to the outcome."""
        if note.level == "warning":
            warnings.warn(note.text, HookcliWarning, stacklevel=_depth())

    def begin(self) -> None:
        """Called when the models are loaded and begin to run."""

    def end(self) -> None:
        """Called when the outcome is known: what is said from now on stands below it."""

    def listed(self, source: str | None = None) -> None:
        """Called when the models of a source are known; None stands for the quick sources."""

    def count(self, total: int, noun: str, *, is_long: bool) -> Progress:
        """Return a bar for ``total`` steps, which are called ``noun``, if that is worth one."""
        if not (is_long and _is_watched()):
            return Progress()
        return (_NotebookBar if _is_notebook() else _Bar)(total, noun)

    def no_data(self) -> AbstractContextManager[None]:
        """Keep what other code prints out of the data on stdout."""
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
    """A bar in an output of its own, which is empty at the end, also in a saved notebook."""

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
class Call:
    """One call of a verb."""

    verb: str
    given: Collection[str] = ()  # the names of the keywords that the user gave
    listener: Listener = field(default_factory=Listener)
    notes: list[Note] = field(default_factory=list)  # so far, for the outcome

    def plan(self, text: str) -> None:
        """Say what will be done."""
        self._tell("plan", text)

    def say(self, text: str) -> None:
        """Say what the user may want to know."""
        self._tell("note", text)

    def warn(self, text: str) -> None:
        """Say what may make the result wrong or incomplete."""
        self._tell("warning", text)

    def answer(self, text: str) -> None:
        """Say what the user asked for."""
        self._tell("answer", text)

    def fail(self, text: str) -> None:
        """Say which rule failed."""
        self._tell("failure", text)

    def _tell(self, level: Level, text: str) -> None:
        note = Note(level, self.listener.to_words(text))
        self.notes.append(note)
        self.listener.hear(note)


def begin(call: Call, skipped: Sequence[SkippedImage], *models: ModelInfo) -> None:
    """Give the warnings that are known before the models run, which they may do from now on."""
    warn_of_skipped(call, skipped)
    texts = (text for model in models for text in (model.warning, *model.notes))
    for text in dict.fromkeys(filter(None, texts)):
        (call.say if text == ASSUMED else call.warn)(text)
    call.listener.begin()


def warn_of_skipped(call: Call, skipped: Sequence[SkippedImage]) -> None:
    """Warn about the images that could not be used, with one line for each reason."""
    for reason in dict.fromkeys(image.reason for image in skipped):
        files = [repr(image.file) for image in skipped if image.reason == reason]
        some = f"{count(len(files), 'image')} ({', '.join(files[:3])}{and_more(len(files) - 3)})"
        call.warn(f"skipped {some if files[1:] else files[0]}: {reason}")


def warn_of_damage(call: Call, damage: Sequence[str]) -> None:
    """Warn that files of a run are missing or have changed; ``damage`` has a sentence for each."""
    if damage:
        more = and_more(len(damage) - 1, " (and {} more)")
        call.warn(f"the folder is not as the run left it: {damage[0]}{more}")


def describe_images(call: Call, images: Sequence[ImageResult]) -> None:
    """Say how inputs other than single pictures, such as clips and pairs, were made."""
    for note in dict.fromkeys(image.note for image in images if image.note):
        call.say(f"the model saw {note}")
    for text, is_warning in describe_intensities(images):
        (call.warn if is_warning else call.say)(text)


def describe_uncalled(call: Call, uncalled: Sequence[Uncalled], chosen: Collection[str]) -> None:
    """Say which of the ``chosen`` layers did not run, with one line for each reason."""
    for group in group_uncalled([(each.layer.label, each.reason) for each in uncalled], chosen):
        number = "" if group.is_few else f", {count(len(group.layers), 'layer')}"
        call.say(f"not called{number}: {group.names}: {group.reason}")
