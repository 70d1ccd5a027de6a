"""What a folder and its lock are asked, wherever the folder is; ``folders`` opens one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from hookcli.outside.urls import Place


@dataclass(frozen=True, slots=True)
class Entry:
    """What a folder holds under one name; a link, a pipe or a device is no file and no folder."""

    size: int  # in bytes
    is_file: bool = False
    is_folder: bool = False


class Lock(Protocol):
    """The lock of a run folder, held until it is closed.

    Attributes:
        descriptor: the open file that is locked, which a child process must close; None without.
        is_new: ``run.json`` was created for the lock, and is still empty.
    """

    descriptor: int | None
    is_new: bool

    def check(self) -> None:
        """Raise an OutputError if another run may have the lock now."""

    def write_request(self, text: bytes, old: bytes | None, /) -> None:
        """Write ``run.json`` as a whole; ``old`` is its content so far."""

    def close(self) -> None:
        """Let the lock go."""


class Log(Protocol):
    """A file that more is added to."""

    def add(self, data: bytes) -> None:
        """Add data at the end."""

    def close(self) -> None:
        """Close the file."""


class Folder(Protocol):
    """A folder that files are written into, inspected and deleted in.

    Names are relative to the folder, with ``/`` between their parts. What goes wrong is an
    ``OutputError``, and of locks and the methods that open a file or read a part of it, an
    ``OSError``.

    Attributes:
        journals: in which a run keeps the names of its files; they are added to the last.
    """

    path: Place
    journals: tuple[str, ...]

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the folder go."""

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this folder."""

    def lock(self) -> Lock:
        """Take the lock of the run in the folder; what others have changed until then is seen."""

    def locked(self) -> AbstractContextManager[object]:
        """Return a context that holds the lock of the finished run in the folder."""

    def refuse_locked(self) -> None:
        """Raise if a run holds the lock; others may look at the same time."""

    def open_log(self, name: str) -> Log:
        """Open a file to add to it."""

    def read(self, name: str) -> bytes | None:
        """Read a file; None if there is none."""

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` to ``stop`` of a file."""

    def read_all(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yield the content of files, in their order; empty for those that do not exist."""
        return (self.read(name) or b"" for name in names)

    def write(self, name: str, data: bytes) -> str:
        """Write a file and return its name; it is complete or not there at all.

        Missing folders are created.
        """

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files."""
        for name, data in files.items():
            self.write(name, data)

    def find(self, name: str) -> Entry | None:
        """Return what there is of this name; None if there is nothing."""

    def is_file(self, name: str) -> bool:
        """Return whether a name is that of a file."""
        found = self.find(name)
        return found is not None and found.is_file

    def measure(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of files as they are now; None for a file that is not there."""
        found = {name: self.find(name) for name in names}
        return {name: each.size if each and each.is_file else None for name, each in found.items()}

    def remove(self, names: Iterable[str]) -> None:
        """Delete files, and the folders that are empty after that; anything else is left alone."""

    def remove_partial(self, names: Iterable[str]) -> None:
        """Delete the half-written versions of files, which a killed writer left behind."""

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield the name and kind of everything in a subfolder, sorted by name.

        Nothing is yielded if there is no such folder.
        """
