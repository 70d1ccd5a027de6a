"""The lock of a run folder on this machine: a process locks ``run.json`` while it writes there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.outside.files import not_ours_error, write_all
from hookcli.store.places.folder import Lock
from hookcli.store.places.names import PARTIAL, REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FileLock(Lock):
    """The lock of a run folder on this machine."""

    descriptor: int

    def __init__(self, path: Path, folder: int) -> None:
        self._path, self._folder = path, folder
        self.descriptor, self.is_new = _lock_request(path, folder)

    def check(self) -> None:
        """Do nothing: the lock of a local file cannot be lost."""

    def write_request(self, text: bytes, old: bytes | None) -> None:
        """Write ``text`` to ``run.json`` in one step: the folder is a run folder at any time."""
        if not old:
            try:
                write_all(self.descriptor, text)
            except OSError:
                os.ftruncate(self.descriptor, 0)  # never leave half a request
                os.unlink(REQUEST, dir_fd=self._folder)  # if empty and alone, it marks a run
                raise
            return
        partial = PARTIAL + REQUEST
        new = open_carefully(self._folder, os.O_RDWR | os.O_CREAT | os.O_EXCL, partial)
        try:
            _take_lock(new, self._path)
            write_all(new, text)
            os.replace(partial, REQUEST, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            os.close(new)
            raise
        # Unlock the old file only now, so that no other run could lock the old or the new file.
        os.close(self.descriptor)
        self.descriptor = new

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


@contextlib.contextmanager
def locked(path: Path, folder: int, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of a run that is already there; several processes may hold ``LOCK_SH``."""
    with open(open_carefully(folder, os.O_RDONLY)) as file:
        _take_lock(file.fileno(), path, kind)
        yield


def _lock_request(path: Path, folder: int) -> tuple[int, bool]:
    """Return the descriptor of ``run.json``, and whether the file is new and still empty."""
    while True:
        is_new = _status(folder) is None
        lock = open_carefully(folder, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            facts = os.fstat(lock)
            if not stat.S_ISREG(facts.st_mode):
                raise not_ours_error(path / REQUEST)
            _take_lock(lock, path)
            now = _status(folder)
            if now is not None and os.path.samestat(now, facts):
                return lock, is_new and now.st_size == 0
        except OutputError:
            os.close(lock)
            raise
        os.close(lock)  # another run replaced the file meanwhile


def _status(folder: int) -> os.stat_result | None:
    try:
        return os.stat(REQUEST, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_carefully(folder: int, flags: int, name: str = REQUEST) -> int:
    """Open the file ``name`` in a folder, without following links or waiting for pipes."""
    return os.open(name, flags | _FLAGS, 0o666, dir_fd=folder)


def _take_lock(lock: int, path: Path, kind: int = fcntl.LOCK_EX) -> None:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"another run is writing into {str(path)!r}", "wait for it, or choose another `out`"
        ) from error
