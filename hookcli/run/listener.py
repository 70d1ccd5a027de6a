"""Define the interface through which a run reports progress and warnings to its caller."""

from __future__ import annotations


class ProgressListener:
    """Is told the progress of a run; its methods do nothing unless a caller overrides them."""

    def resumed(self, done: int) -> None:
        """Called when ``--resume`` continues a run; ``done`` images (maybe 0) are finished."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """Called after a chunk: ``done`` images are finished; ``skipped`` of them were skipped."""

    def worked(self, node: str, images: int) -> None:
        """Called when the machine ``node`` of a cluster has finished ``images`` more images."""

    def warn(self, text: str) -> None:
        """Called with a warning for the user."""
