"""What a run tells whoever started it while it goes on."""

from __future__ import annotations


class ProgressListener:
    """Receives the progress of a run; this one ignores it."""

    def resumed(self, done: int) -> None:
        """The run continues an interrupted one after its first ``done`` images, which may be 0."""

    def chunk_done(self, done: int, skipped: int) -> None:
        """So far ``done`` images have gone through or been skipped, ``skipped`` of them skipped."""

    def worked(self, node: str, images: int) -> None:
        """A machine of a cluster has done ``images`` more images."""

    def warn(self, text: str) -> None:
        """There is a warning for the user."""
