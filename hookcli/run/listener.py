"""Define the interface through which a run reports progress and warnings to its caller."""

from __future__ import annotations


class ProgressListener:
    """Receives the progress of a run. Its methods do nothing unless a subclass overrides them."""

    def resumed(self, done: int) -> None:
        """Called when ``--resume`` continues a run that has already finished ``done`` images."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """Called after each chunk; ``done`` counts all images so far, with ``skipped`` ones."""

    def worked(self, node: str, images: int) -> None:
        """Called when the machine ``node`` of a cluster has finished ``images`` more images."""

    def warn(self, text: str) -> None:
        """Called with a warning for the user."""
