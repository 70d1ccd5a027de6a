"""The lock of a run folder: ``run.json``, locked while anything writes into the folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.files import not_ours_error, write_all
from hookcli.store.places.directory import PARTIAL
from hookcli.store.places.names import REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hookcli.store.places.directory import Directory


class FileLock:
    """The lock of a folder on this machine, held until it is closed.

    Attributes:
        descriptor: the open file that is locked; a child process must close it.
        is_new: ``run.json`` was created for the lock, and is still empty.
    """

    def __init__(self, folder: Directory) -> None:
        """Take the lock.

        Raises:
            OSError: the file cannot be opened.
            OutputError: the name is not that of a regular file, or another run holds the lock.
        """
        self._folder = folder
        self.descriptor, self.is_new = _lock_request(folder)

    def check(self) -> None:
        """Do nothing: such a lock cannot be lost."""

    def write_request(self, text: bytes, begun: bytes | None) -> None:
        """Write ``run.json``, replacing an older one as a whole.

        At no moment is the folder without a request, so it is always known to be that of a run.

        Args:
            text: the new content.
            begun: the content so far.

        Raises:
            OSError: the file cannot be written.
        """
        if not begun:
            try:
                _write_whole(self.descriptor, text)
            except OSError:
                self._folder.remove({REQUEST})  # an empty one marks a run only if it is alone
                raise
            return
        new = self._folder.open_inside(PARTIAL + REQUEST, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _take_lock(new, self._folder.path)
            write_all(new, text)
            self._folder.rename(PARTIAL + REQUEST, REQUEST)
        except OSError:
            os.close(new)
            raise
        # Only now: until here no other run could lock the old file or the new one.
        os.close(self.descriptor)
        self.descriptor = new

    def close(self) -> None:
        """Let the lock go."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


@contextlib.contextmanager
def locked(folder: Directory) -> Iterator[None]:
    """Hold the lock of the run in a folder while the ``with`` block lasts.

    Raises:
        OSError: there is no ``run.json`` that can be opened.
        OutputError: another process holds the lock.
    """
    with open(folder.open_inside(REQUEST, os.O_RDONLY)) as file:  # noqa: PTH123
        _take_lock(file.fileno(), folder.path)
        yield


def refuse_locked(folder: Directory) -> None:
    """Raise if a run holds the lock of a folder; others may look at the same time.

    Raises:
        OSError: there is no ``run.json`` that can be opened.
        OutputError: another process holds the lock.
    """
    with open(folder.open_inside(REQUEST, os.O_RDONLY)) as file:  # noqa: PTH123
        _take_lock(file.fileno(), folder.path, fcntl.LOCK_SH)


def _lock_request(folder: Directory) -> tuple[int, bool]:
    """Lock ``run.json``; return its descriptor, and whether the file is new and still empty."""
    while True:
        is_new = folder.status(REQUEST) is None
        lock = folder.open_inside(REQUEST, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            facts = os.fstat(lock)
            if not stat.S_ISREG(facts.st_mode):
                raise not_ours_error(folder.path / REQUEST)
            _take_lock(lock, folder.path)
            now = folder.status(REQUEST)
            if now is not None and os.path.samestat(now, facts):
                return lock, is_new and now.st_size == 0
        except OutputError:
            os.close(lock)
            raise
        os.close(lock)  # another run has replaced the file meanwhile


def _take_lock(lock: int, path: Path, kind: int = fcntl.LOCK_EX) -> None:
    """Lock an open ``run.json`` until it is closed.

    Raises:
        OutputError: another process holds the lock.
    """
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"another run is writing into {str(path)!r}", "wait for it, or choose another -o"
        ) from error


def _write_whole(descriptor: int, text: bytes) -> None:
    """Write a text into an empty file, which is empty again if not all of it can be written.

    Raises:
        OSError: the text cannot be written.
    """
    try:
        write_all(descriptor, text)
    except OSError:
        os.ftruncate(descriptor, 0)
        raise
