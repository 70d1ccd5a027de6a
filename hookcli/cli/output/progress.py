"""Show the progress of a long run on stderr: a bar on a colour terminal, else a line every 10 s."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichBar

from hookcli.cli.output import console
from hookcli.verbs.call import Progress

_EVERY = 10.0  # seconds between two lines
_RECENT = 20  # the latest images, or more within a second, decide the speed


class Bar(Progress):
    def __init__(self, total: int, noun: str, *, is_shown: bool, quiet: bool) -> None:
        self._total, self._noun, self._is_shown, self._quiet = total, noun, is_shown, quiet
        self._began = self._last_line = time.monotonic()
        self._steps = deque([(self._began, 0)])  # recent times, and the images done by then
        self._bar: RichBar | None = None
        self._nodes: Counter[str] = Counter()  # images per machine of a cluster

    def __enter__(self) -> Bar:
        if self._is_shown and sys.stderr.isatty() and not console.is_plain():
            self._bar = RichBar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
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
        self.done = done
        self._steps = deque([(self._began, done)])
        going_on = f"continuing after {done} of {self._total} {self._noun}"
        text = going_on if done else "nothing to resume: starting with the first image"
        console.say(text, quiet=self._quiet)

    def chunk_done(self, done: int, skipped: int = 0) -> None:
        self.done = done
        if not self._is_shown:
            return
        now = time.monotonic()
        rate = self._measure(now)
        speed = f"{rate:.1f} {self._noun}/s" + (f", {skipped} skipped" if skipped else "")
        if len(self._nodes) > 1:
            each = (f"{node} {n / (now - self._began):.1f}" for node, n in self._nodes.items())
            speed += f" ({', '.join(each)})"
        speed += f", about {(self._total - done) / rate:.0f} s left" if rate else ""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, rate=speed)
        elif now - self._last_line >= _EVERY:
            self._last_line = now
            console.say(f"{done} of {self._total} {self._noun}, {speed}")

    def _measure(self, now: float) -> float:
        """Return the recent speed, in images per second; the first images of a run are slow."""
        steps = self._steps
        while len(steps) > 1 and self.done - steps[1][1] >= _RECENT and now - steps[1][0] >= 1:
            steps.popleft()
        steps.append((now, self.done))
        return (self.done - steps[0][1]) / max(1e-9, now - steps[0][0])

    def worked(self, node: str, images: int) -> None:
        self._nodes[node] += images

    def warn(self, text: str) -> None:
        console.warn(text)
