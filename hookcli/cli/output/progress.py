"""How a long run goes, on stderr: a bar at a terminal that takes escapes, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hookcli.cli.output import console
from hookcli.run.chunk_writer import ProgressListener

if TYPE_CHECKING:
    from rich.progress import TaskID

_EVERY = 10.0  # seconds between two lines


class Progress(ProgressListener):
    """A ``with`` block in which a run tells how it goes; silent where it is not to be shown."""

    def __init__(self, total: int, noun: str = "images", *, is_shown: bool) -> None:
        self._total, self._noun, self._is_shown = total, noun, is_shown
        self._began = self._said = time.monotonic()
        self._first = 0  # images that an earlier run had done
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        if self._is_shown and sys.stderr.isatty() and not console.is_plain():
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
                console=Console(stderr=True, markup=False, highlight=False), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(self._noun, total=self._total, rate="")
            self._bar.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def resumed(self, done: int) -> None:
        """``done`` images stand from the run that was interrupted."""
        self._first = done
        if self._is_shown and done:
            console.say(f"going on after {done} of {self._total} {self._noun}")

    def chunk_done(self, done: int, skipped: int) -> None:
        """``done`` of all have been done so far, or been skipped."""
        if not self._is_shown:
            return
        now = time.monotonic()
        rate = (done - self._first) / max(1e-9, now - self._began)
        speed = f"{rate:.1f} {self._noun}/s" + (f", {skipped} skipped" if skipped else "")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, rate=speed)
        elif now - self._said >= _EVERY:
            self._said = now
            left = (self._total - done) / rate if rate else 0.0
            console.say(f"{done} of {self._total} {self._noun}, {speed}, about {left:.0f} s left")

    def warn(self, text: str) -> None:
        """Something that the user must know."""
        console.warn(text)
