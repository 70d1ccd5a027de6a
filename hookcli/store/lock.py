"""The lock of a run folder: ``run.json``, locked while anything writes into the folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.store.names import REQUEST
from hookcli.store.ownership import not_ours_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hookcli.store.directory import Directory


def lock_request(folder: Directory) -> tuple[int, bool]:
    """Lock ``run.json``; return its descriptor, and whether the file is new and still empty.

    Raises:
        OSError: the file cannot be opened.
        OutputError: the name is not that of a regular file, or another run holds the lock.
    """
    while True:
        is_new = folder.status(REQUEST) is None
        lock = folder.open_inside(REQUEST, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            facts = os.fstat(lock)
            if not stat.S_ISREG(facts.st_mode):
                raise not_ours_error(folder, REQUEST)
            take_lock(lock, folder.path)
            now = folder.status(REQUEST)
            if now is not None and os.path.samestat(now, facts):
                return lock, is_new and now.st_size == 0
        except OutputError:
            os.close(lock)
            raise
        os.close(lock)  # another run has replaced the file meanwhile


def take_lock(lock: int, path: Path) -> None:
    """Lock an open ``run.json`` until it is closed.

    Raises:
        OutputError: another process holds the lock.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"another run is writing into {str(path)!r}", "wait for it, or choose another -o"
        ) from error


@contextlib.contextmanager
def locked(folder: Directory) -> Iterator[None]:
    """Hold the lock of the run in a folder while the ``with`` block lasts.

    Raises:
        OSError: there is no ``run.json`` that can be opened.
        OutputError: another process holds the lock.
    """
    with open(folder.open_inside(REQUEST, os.O_RDONLY)) as file:  # noqa: PTH123
        take_lock(file.fileno(), folder.path)
        yield
