"""Images by their names: one set of questions for files on this machine and for URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hookcli.images import local, remote
from hookcli.outside.urls import choose

if TYPE_CHECKING:
    import io

    from hookcli.records.images import SkippedImage


class Filesystem(Protocol):
    """Questions about files by their names, on this machine or at URLs, without ``file://``.

    Any function but ``is_pattern`` and ``is_same`` may raise an OSError.
    """

    def check(self, name: str) -> None:
        """Raise a RequestError if a name cannot be used; this reads nothing."""

    def open_file(self, file: str) -> io.BufferedReader | io.BytesIO:
        """Open a file."""

    def find_state(self, file: str) -> tuple[int, int]:
        """Return the size of a file, and the time of its last change in ns since 1970."""

    def is_folder(self, name: str) -> bool:
        """Return whether a name belongs to a folder."""

    def is_same(self, folder: str, other: str) -> bool:
        """Return whether two names belong to the same folder; no folder has the name ``""``."""

    def name_folder(self, name: str) -> str:
        """Return a folder's own name, or the name of the folder around a file."""

    def list_frames(self, folder: str) -> list[str]:
        """Return the files in a folder, sorted by name, without hidden ones."""

    def is_pattern(self, word: str) -> bool:
        """Return whether a word is a glob instead of a file name."""

    def glob(self, pattern: str) -> list[str]:
        """Return the names that match a glob."""

    def list_images(
        self, folder: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
    ) -> list[str | SkippedImage]:
        """Return the files in a folder that have one of the suffixes, except the files of runs."""


def choose_filesystem(name: str) -> Filesystem:
    """Return the filesystem that a name belongs to."""
    chosen: Filesystem = choose(name, local, remote)
    return chosen
