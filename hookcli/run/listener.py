"""The progress that a run reports to its caller."""

from __future__ import annotations


class ProgressListener:
    """Receives the progress of a run. This base class ignores the progress."""

    def resumed(self, done: int) -> None:
        """Called when ``--resume`` continues a run; it had finished ``done`` images, perhaps 0."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """Called when more images are finished: now ``done``, of which ``skipped`` were skipped."""

    def worked(self, node: str, images: int) -> None:
        """Called when the machine ``node`` of a cluster has finished ``images`` more images."""

    def warn(self, text: str) -> None:
        """Called with a warning for the user."""
