"""The progress that a run reports to its caller."""

from __future__ import annotations


class ProgressListener:
    """Receives the progress of a run. This base class ignores the progress."""

    def resumed(self, done: int) -> None:
        """Called when a run continues after ``done`` images of an interrupted run, perhaps 0."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """Called when ``done`` images are finished so far, of which ``skipped`` were skipped."""

    def worked(self, node: str, images: int) -> None:
        """Called when the machine ``node`` of a cluster has finished ``images`` more images."""

    def warn(self, text: str) -> None:
        """Called with a warning for the user."""
