"""The progress that a run reports to its caller."""

from __future__ import annotations


class ProgressListener:
    """Receives the progress of a run; this one ignores it."""

    def resumed(self, done: int) -> None:
        """The run continues an interrupted run after its first ``done`` images, which may be 0."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """So far ``done`` images are done, and ``skipped`` of these were skipped."""

    def worked(self, node: str, images: int) -> None:
        """A machine of a cluster has finished ``images`` more images."""

    def warn(self, text: str) -> None:
        """The run has a warning for the user."""
