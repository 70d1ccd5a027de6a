"""Locks of run folders on this machine and elsewhere, taken in the same way."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, TypeAlias

from hookcli.store.places import file_lock, lease
from hookcli.store.places.directory import Directory
from hookcli.store.places.names import REQUEST

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hookcli.store.places.folders import AnyFolder

AnyLock: TypeAlias = "file_lock.FileLock | lease.Lease"


def lock_folder(folder: AnyFolder) -> AnyLock:
    """Take the lock of the run in a folder.

    Raises:
        OSError: the file of the lock cannot be opened.
        OutputError: another run holds the lock.
    """
    return file_lock.FileLock(folder) if isinstance(folder, Directory) else lease.Lease(folder)


def locked(folder: AnyFolder) -> AbstractContextManager[object]:
    """Return a context that holds the lock of the finished run in a folder.

    Raises:
        OSError: the file of the lock cannot be opened.
        OutputError: another run holds the lock.
    """
    return (
        file_lock.locked(folder) if isinstance(folder, Directory) else closing(lease.Lease(folder))
    )


def refuse_locked(folder: AnyFolder) -> None:
    """Raise if a run is known to be writing into a folder, before its changing files are judged.

    Raises:
        OutputError: a run is writing into it.
    """
    with suppress(OSError):
        if not isinstance(folder, Directory):
            lease.refuse_locked(folder)
        elif folder.is_file(REQUEST):
            file_lock.refuse_locked(folder)
