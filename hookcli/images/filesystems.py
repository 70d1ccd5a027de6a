"""Define one interface to image files, whether they are on this machine or at URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hookcli.images import local, remote
from hookcli.outside.urls import choose

if TYPE_CHECKING:
    import io

    from hookcli.records.images import SkippedImage


class Filesystem(Protocol):
    """Declares the functions of the modules ``local`` and ``remote``; each may raise an OSError."""

    def check(self, name: str) -> None: ...
    def open_file(self, file: str) -> io.BufferedReader | io.BytesIO: ...
    def find_state(self, file: str) -> tuple[int, int]: ...  # bytes, and ns since 1970
    def is_folder(self, name: str) -> bool: ...
    def is_same(self, folder: str, other: str) -> bool: ...
    def name_folder(self, name: str) -> str: ...  # of a file: the name of the file's folder
    def list_frames(self, folder: str) -> list[str]: ...
    def is_pattern(self, word: str) -> bool: ...
    def glob(self, pattern: str) -> list[str]: ...
    # Hidden files, files of runs and those in ``leave_out`` are left out. A folder that cannot be
    # read is a skipped image.
    def list_images(
        self, folder: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
    ) -> list[str | SkippedImage]: ...


def choose_filesystem(name: str) -> Filesystem:
    return choose(name, local, remote)
