"""Run folders on this machine and elsewhere: opened here, and after that all alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hookcli.errors import OutputError
from hookcli.outside.files import cannot_write
from hookcli.store.places.directory import Directory
from hookcli.store.places.remote_folder import RemoteFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from hookcli.outside.urls import Place
    from hookcli.store.places.entry import Entry
    from hookcli.store.places.file_lock import FileLock
    from hookcli.store.places.lease import Lease


Lock: TypeAlias = "FileLock | Lease"


class Log(Protocol):
    """A file that is being added to."""

    def add(self, data: bytes) -> None:
        """Add data, all of it or nothing."""

    def close(self) -> None:
        """Close the file; an OSError is raised if the disk is full."""


class Folder(Protocol):
    """An open folder, in which files are written, inspected and deleted.

    Names are relative to the folder, with ``/`` between their parts. What goes wrong is an
    ``OutputError``, and of locks and the methods that open a file or read a part of it, an
    ``OSError``.
    """

    @property
    def path(self) -> Place:
        """The path or URL of the folder."""

    @property
    def journals(self) -> tuple[str, ...]:
        """The files in which the journal of a run is kept; names are added to the last one."""

    def __enter__(self) -> Folder: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this folder."""

    def lock(self) -> Lock:
        """Take the lock of the run in the folder; what others have changed until then is seen."""

    def locked(self) -> AbstractContextManager[object]:
        """Return a context that holds the lock of the finished run in the folder."""

    def refuse_locked(self) -> None:
        """Raise if a run is known to be writing into the folder."""

    def open_log(self, name: str) -> Log:
        """Open a file to add to it."""

    def read(self, name: str) -> bytes | None:
        """Read a regular file; None if there is none."""

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        """Read the bytes from ``start`` to ``stop`` of a regular file."""

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the content of files, in their order; empty for those that do not exist."""

    def write(self, name: str, data: bytes) -> str:
        """Write a file and return its name; it is complete or not there at all."""

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files."""

    def find(self, name: str) -> Entry | None:
        """Return what there is of this name; None if there is nothing."""

    def is_file(self, name: str) -> bool:
        """Return whether there is a regular file of this name."""

    def measure(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of regular files as they are now; None for a file that is not there."""

    def remove(self, names: Iterable[str]) -> None:
        """Delete regular files, and the folders that are empty after that."""

    def remove_partial(self, names: Iterable[str]) -> None:
        """Delete the half-written versions of files, which a killed writer left behind."""

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        """Yield the name and kind of everything in a subfolder, sorted by name."""


def open_folder(place: Place, *, make: bool = False) -> Folder:
    """Open a folder; one in a storage may have nothing in it yet.

    Args:
        place: its path or URL.
        make: make the folder if there is none.

    Raises:
        OSError: there is no such folder on this machine, or it may not be made or read.
    """
    if not isinstance(place, Path):
        return RemoteFolder(place)
    if make:
        place.mkdir(parents=True, exist_ok=True)
    return Directory(place)


def find_folder(place: Place) -> Folder | None:
    """Open a folder; None if there is nothing of its name.

    Raises:
        OutputError: it is a file, or may not be read.
    """
    try:
        return open_folder(place)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.lexists(place):
            raise file_in_the_way_error(place) from error
        return None
    except OSError as error:
        raise cannot_write(place, error) from error


def file_in_the_way_error(path: Place) -> OutputError:
    """Return the error for a file where a folder is expected."""
    return OutputError(f"{str(path)!r} is a file, not a folder", "choose another folder with -o")
