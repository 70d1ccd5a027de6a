"""One interface to image files by name, whether they are on this machine or at URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hookcli.images import local, remote
from hookcli.outside.urls import choose

if TYPE_CHECKING:
    import io

    from hookcli.records.images import SkippedImage


class Filesystem(Protocol):
    """What ``local`` and ``remote`` implement; all functions with a name may raise an OSError."""

    def check(self, name: str) -> None:
        """Raise a RequestError if hookcli cannot use a name; nothing is read."""

    def open_file(self, file: str) -> io.BufferedReader | io.BytesIO:
        """Open a file for reading, in binary mode."""

    def find_state(self, file: str) -> tuple[int, int]:
        """Return the size of a file, and the time of its last change in ns since 1970."""

    def is_folder(self, name: str) -> bool:
        """Return whether a name is the name of a folder."""

    def is_same(self, folder: str, other: str) -> bool:
        """Return whether two names lead to the same folder; False if ``other`` is empty."""

    def name_folder(self, name: str) -> str:
        """Return the last part of a folder's path; for a file, of the path of the file's folder."""

    def list_frames(self, folder: str) -> list[str]:
        """Return the files directly in a folder, but no hidden ones, sorted by ``natural_key``."""

    def is_pattern(self, word: str) -> bool:
        """Return whether a word is a glob instead of a file name."""

    def glob(self, pattern: str) -> list[str]:
        """Return the names that match a glob."""

    def list_images(
        self, folder: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
    ) -> list[str | SkippedImage]:
        """Return the files in a folder with one of ``suffixes``, in the order of their paths."""
        # Hidden files, files of runs and those in ``leave_out`` are left out. A folder that cannot
        # be read is a skipped image.


def choose_filesystem(name: str) -> Filesystem:
    chosen: Filesystem = choose(name, local, remote)
    return chosen
