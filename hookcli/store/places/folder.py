"""The interface of a run folder and its lock, wherever the folder is; ``folders`` opens one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from hookcli.outside.urls import Place


@dataclass(frozen=True, slots=True)
class Entry:
    """What a folder holds under one name; a link, pipe or device is neither file nor folder."""

    size: int  # bytes
    is_file: bool = False
    is_folder: bool = False


class Lock(Protocol):
    """The lock of a run folder, held until it is closed.

    Attributes:
        descriptor: the locked file, which a child process must close; None if the lock is no open
            file.
        is_new: ``run.json`` was created for the lock, and is still empty.
    """

    descriptor: int | None
    is_new: bool

    def check(self) -> None:
        """Raise an OutputError if another run may hold the lock now."""

    def write_request(self, text: bytes, old: bytes | None, /) -> None:
        """Write ``run.json`` as a whole; ``old`` is its present content."""

    def close(self) -> None:
        """Release the lock."""


class Log(Protocol):
    """A file to append to."""

    def add(self, data: bytes) -> None:
        """Append data."""

    def close(self) -> None:
        """Close the file."""


class Folder(Protocol):
    """A folder whose files hookcli writes, inspects and deletes.

    Names are relative to the folder, with ``/`` between their parts. Methods raise an
    ``OutputError``; those of locks, and those that open a file or read a part of it, raise an
    ``OSError``.

    Attributes:
        journals: the files in which a run keeps the names of its files; it adds names to the last
            of them.
    """

    path: Place
    journals: tuple[str, ...]

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_error: object) -> None:
        """Release the folder."""

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this folder."""

    def lock(self) -> Lock:
        """Lock the run in the folder; afterwards, this object sees what others changed before."""

    def locked(self) -> AbstractContextManager[object]:
        """Return a ``with`` block that holds the lock of the finished run in the folder."""

    def refuse_locked(self) -> None:
        """Raise an error if a run holds the lock; other processes may check at the same time."""

    def open_log(self, name: str) -> Log:
        """Open a file to append to it."""

    def read(self, name: str) -> bytes | None:
        """Read a file; None if it does not exist."""

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` to ``stop`` of a file."""

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of files, in their order; a missing file is empty."""
        return (self.read(name) or b"" for name in names)

    def write(self, name: str, data: bytes) -> str:
        """Write a file and return its name; it is written completely or not at all.

        Missing folders are created.
        """

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files."""
        for name, data in files.items():
            self.write(name, data)

    def find(self, name: str) -> Entry | None:
        """Return what has this name; None if nothing has it."""

    def is_file(self, name: str) -> bool:
        """Return whether a file has this name."""
        found = self.find(name)
        return found is not None and found.is_file

    def measure(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the present sizes of files; None for a missing file."""
        found = {name: self.find(name) for name in names}
        return {name: each.size if each and each.is_file else None for name, each in found.items()}

    def remove(self, names: Iterable[str]) -> None:
        """Delete files, and the folders that become empty; leave anything else alone."""

    def remove_partial(self, names: Iterable[str]) -> None:
        """Delete the half-written versions of files that a killed writer left behind."""

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield the name and kind of everything in a subfolder, sorted by name.

        If there is no such folder, yield nothing.
        """
