"""The interfaces of a run folder and of its lock, on this machine or in cloud storage."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from hookcli.outside.urls import Place


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder; a link, a pipe and a device count as neither file nor folder."""

    size: int  # bytes
    is_file: bool = False
    is_folder: bool = False


class Lock(Protocol):
    """The lock of a run folder, held until ``close`` is called."""

    descriptor: int | None  # of the locked file, which a child process must close, if it is open
    is_new: bool  # whether ``run.json`` was created for the lock and is still empty

    def check(self) -> None:
        """Raise an OutputError if another run may hold the lock now."""

    def write_request(self, text: bytes, old: bytes | None, /) -> None:
        """Write ``text`` as the whole content of ``run.json``, whose present content is ``old``."""

    def close(self) -> None:
        """Release the lock."""


class Log(Protocol):
    """An open file to which hookcli appends data."""

    def add(self, data: bytes) -> None:
        """Append data to the file."""

    def close(self) -> None:
        """Close the file."""


class Folder(Protocol):
    """A folder whose files hookcli writes, inspects and deletes.

    Names are relative to the folder, with ``/`` between their parts. Methods raise an
    ``OutputError`` if a file cannot be used; ``lock``, ``open_log`` and ``read_part`` may raise an
    ``OSError`` instead. A run lists its files in ``journals``, and further ones in the last.
    """

    path: Place
    journals: tuple[str, ...]

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_error: object) -> None:
        return

    def is_in_place(self) -> bool:
        """Return whether ``path`` still leads to this folder; False if the folder was moved."""

    def lock(self) -> Lock:
        """Take the lock, after which this object sees all earlier changes by other processes."""

    def locked(self) -> AbstractContextManager[object]:
        """Hold the lock while the ``with`` block lasts; the folder must hold a run."""
        return contextlib.closing(self.lock())

    def refuse_locked(self) -> None:
        """Raise an OutputError if a run holds the lock."""

    def open_log(self, name: str) -> Log:
        """Open a file for appending."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes of a file from position ``start`` to position ``stop`` (exclusive)."""

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of each file, in the order of ``names``; empty for a missing file."""
        return (self.read(name) or b"" for name in names)

    def write(self, name: str, data: bytes) -> str:
        """Write a file completely or not at all, and return its name."""

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write several files, by name."""
        for name, data in files.items():
            self.write(name, data)

    def find(self, name: str) -> Entry | None:
        """Return the entry with this name; None if there is none."""

    def is_file(self, name: str) -> bool:
        """Return whether a file has this name."""
        found = self.find(name)
        return found is not None and found.is_file

    def measure(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the present size of each file in bytes; None for a missing file."""
        found = {name: self.find(name) for name in names}
        return {name: each.size if each and each.is_file else None for name, each in found.items()}

    def remove(self, names: Iterable[str]) -> None:
        """Delete files, and the folders that become empty; ignore names that are not files."""

    def remove_partial(self, names: Iterable[str]) -> None:
        """Delete the half-written versions of these files that a killed process left behind."""

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield the name and the entry of everything directly in a folder, sorted by name."""
