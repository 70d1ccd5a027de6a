"""Images by their names: those on this machine and those at URLs, asked in the same words."""

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
        """Raise a RequestError if a name cannot be used; nothing is read."""

    def open_file(self, file: str) -> io.BufferedReader | io.BytesIO:
        """Open a file."""

    def find_state(self, file: str) -> tuple[int, int]:
        """Return the size of a file, and when it was changed in ns since 1970."""

    def is_folder(self, name: str) -> bool:
        """Return whether a name is that of a folder."""

    def is_same(self, folder: str, other: str) -> bool:
        """Return whether two names are those of one folder; no folder has the name ``""``."""

    def name_folder(self, name: str) -> str:
        """Return the name of a folder, or of the folder that a file is in."""

    def list_frames(self, folder: str) -> list[str]:
        """Return the files in a folder, sorted by name, without hidden ones."""

    def is_pattern(self, word: str) -> bool:
        """Return whether a word is a glob, and not the name of a file."""

    def glob(self, pattern: str) -> list[str]:
        """Return what a glob matches."""

    def list_images(
        self, folder: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
    ) -> list[str | SkippedImage]:
        """Return the files with such a suffix in a folder, without those of runs."""


def choose_filesystem(name: str) -> Filesystem:
    """Return the filesystem that a name belongs to."""
    chosen: Filesystem = choose(name, local, remote)
    return chosen
