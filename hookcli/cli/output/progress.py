"""Show the progress of a long run on stderr: a bar on a colour terminal, else a line every 10 s."""

from __future__ import annotations

import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichBar

from hookcli.cli.output import console
from hookcli.verbs.call import Progress

_EVERY = 10.0  # seconds between two lines


class Bar(Progress):
    def __init__(self, total: int, noun: str, *, is_shown: bool, quiet: bool) -> None:
        self._total, self._noun, self._is_shown, self._quiet = total, noun, is_shown, quiet
        self._began = self._last_line = time.monotonic()
        self._first = 0  # images from the interrupted run
        self._bar: RichBar | None = None
        self._nodes: Counter[str] = Counter()  # images per machine of a cluster

    def __enter__(self) -> Bar:
        if self._is_shown and sys.stderr.isatty() and not console.is_plain():
            self._bar = RichBar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True, markup=False, highlight=False),
                transient=True,
            )
            self._bar.add_task(self._noun, total=self._total, rate="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def resumed(self, done: int) -> None:
        self.done = self._first = done
        text = "nothing to resume: starting with the first image"
        if done:
            text = f"continuing after {done} of {self._total} {self._noun}"
        console.say(text, quiet=self._quiet)

    def chunk_done(self, done: int, skipped: int = 0) -> None:
        self.done = done
        if not self._is_shown:
            return
        now = time.monotonic()
        rate = (done - self._first) / max(1e-9, now - self._began)
        speed = f"{rate:.1f} {self._noun}/s" + (f", {skipped} skipped" if skipped else "")
        if len(self._nodes) > 1:
            each = (f"{node} {n / (now - self._began):.1f}" for node, n in self._nodes.items())
            speed += f" ({', '.join(each)})"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, rate=speed)
        elif now - self._last_line >= _EVERY:
            self._last_line = now
            left = (self._total - done) / rate if rate else 0.0
            console.say(f"{done} of {self._total} {self._noun}, {speed}, about {left:.0f} s left")

    def worked(self, node: str, images: int) -> None:
        self._nodes[node] += images

    def warn(self, text: str) -> None:
        console.warn(text)
