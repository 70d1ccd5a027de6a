"""A run folder on this machine, held open and changed without following any link in it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.outside.files import cannot_write, full_name, write_all
from hookcli.store.places.file_lock import FileLock, locked, open_carefully
from hookcli.store.places.folder import Entry, Folder, Log
from hookcli.store.places.names import JOURNAL, PARTIAL, REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

MOST_BYTES = 1 << 30  # the largest file that is read

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # or a link, which hookcli does not follow
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Directory(Folder):
    """A run folder on this machine, held by its descriptor while the ``with`` block lasts.

    No part of a file's name may be a link, so hookcli writes and deletes only inside this very
    folder. If the folder is deleted or moved meanwhile, hookcli does not create it again. The path
    to the folder itself may contain links.
    """

    path: Path
    journals = (JOURNAL,)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._full = full_name(path)
        self._held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __exit__(self, *_error: object) -> None:
        os.close(self._held)

    def is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._full.stat(), os.fstat(self._held))
        except OSError:
            return False

    def lock(self) -> FileLock:
        return FileLock(self.path, self._held)

    def locked(self) -> AbstractContextManager[object]:
        return locked(self.path, self._held)

    def refuse_locked(self) -> None:
        if self.is_file(REQUEST):
            with suppress(OSError), locked(self.path, self._held, fcntl.LOCK_SH):
                pass

    def open_log(self, name: str) -> _AppendedFile:
        return _AppendedFile(self._open(name, os.O_WRONLY | os.O_APPEND), self.path / name)

    def _open(self, name: str, flags: int) -> int:
        with self._parent(name) as (parent, last):
            return open_carefully(parent, flags, last)

    def read(self, name: str) -> bytes | None:
        """Return the content of a regular file of at most 1 GiB; None for anything else."""
        try:
            with self._parent(name) as (parent, last):
                if not stat.S_ISREG(os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode):
                    return None
                opened = open_carefully(parent, os.O_RDONLY, last)
            with open(opened, "rb") as stream:  # noqa: PTH123
                facts = os.fstat(stream.fileno())
                is_small = stat.S_ISREG(facts.st_mode) and facts.st_size <= MOST_BYTES
                return stream.read(MOST_BYTES) if is_small else None
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            what = f"cannot read {str(self.path / name)!r}: {error.strerror or error}"
            raise OutputError(what, "choose another folder with `out`") from error

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        with open(self._open(name, os.O_RDONLY), "rb") as stream:  # noqa: PTH123
            stream.seek(start)
            return stream.read(stop - start)

    def write(self, name: str, data: bytes) -> str:
        """Write a file as ``.partial-NAME``, and rename it when it is complete."""
        # If a killed process left such a file, the caller must first call ``remove_partial``.
        with self._explain(name), self._parent(name, make=True) as (parent, last):
            descriptor = os.open(PARTIAL + last, _NEW_FILE, 0o666, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(data)
                os.replace(PARTIAL + last, last, src_dir_fd=parent, dst_dir_fd=parent)
            except OSError:
                with suppress(OSError):
                    os.unlink(PARTIAL + last, dir_fd=parent)
                raise
        return name

    def is_file(self, name: str) -> bool:
        try:
            return super().is_file(name)
        except OutputError:
            return False

    def find(self, name: str) -> Entry | None:
        with (
            self._explain(name),
            suppress(FileNotFoundError),
            self._parent(name) as (parent, last),
        ):
            return _to_entry(os.stat(last, dir_fd=parent, follow_symlinks=False))
        return None

    def remove(self, names: Iterable[str]) -> None:
        emptied = set()
        for name in sorted(names):
            top = name.rpartition("/")[0]
            if self._remove_file(name) and top:
                emptied |= {top, top.partition("/")[0]}
        for folder in sorted(emptied, key=len, reverse=True):
            with suppress(OSError), self._parent(folder) as (parent, last):
                os.rmdir(last, dir_fd=parent)

    def remove_partial(self, names: Iterable[str]) -> None:
        parts = (name.rpartition("/") for name in names)
        self.remove({f"{top}{slash}{PARTIAL}{last}" for top, slash, last in parts})

    def _remove_file(self, name: str) -> bool:
        if not self.is_file(name):
            return False
        with (
            self._explain(name),
            suppress(FileNotFoundError),
            self._parent(name) as (parent, last),
        ):
            os.unlink(last, dir_fd=parent)
            return True
        return False

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        try:
            whole = self._parent(f"{name}/." if name else ".")
            with whole as (folder, _), os.scandir(folder) as inside:
                found = {each.name: each.stat(follow_symlinks=False) for each in inside}
        except OSError as error:
            if error.errno in _NOT_THERE:
                return
            raise cannot_write(self.path / name, error) from error
        prefix = f"{name}/" if name else ""
        yield from ((f"{prefix}{last}", _to_entry(found[last])) for last in sorted(found))

    @contextmanager
    def _parent(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        *folders, last = name.split("/")
        if last in ("", "..") or not {"", ".", ".."}.isdisjoint(folders):
            raise ValueError(f"{name!r} is not a name inside a folder")
        current = os.dup(self._held)
        try:
            for part in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=current)
                inner = os.open(part, _FOLDER, dir_fd=current)
                os.close(current)
                current = inner
            yield current, last
        finally:
            os.close(current)

    @contextmanager
    def _explain(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"cannot write {str(self.path / name)!r}"
            is_link = error.errno == errno.ELOOP
            if is_link or (error.errno == errno.ENOTDIR and self._is_through_link(name)):
                raise OutputError(
                    f"{what}: a folder in its name is a link, which is never followed",
                    "choose another folder with `out`",
                ) from error
            if error.errno == errno.ENOENT and not self.is_in_place():
                raise OutputError(
                    f"{what}: the folder was deleted or moved meanwhile",
                    "run the same command again",
                ) from error
            raise cannot_write(self.path / name, error) from error

    def _is_through_link(self, name: str) -> bool:
        """Tell a link from a file: Linux reports "not a directory" for both."""
        parts = name.split("/")[:-1]
        names = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        return any((self.path / each).is_symlink() for each in names)


class _AppendedFile(Log):
    """An open file for appending. If an addition fails, the file keeps its earlier content."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor, self._path = descriptor, path

    def add(self, data: bytes) -> None:
        before = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        os.close(self._descriptor)


def _to_entry(status: os.stat_result) -> Entry:
    kind = status.st_mode
    return Entry(status.st_size, is_file=stat.S_ISREG(kind), is_folder=stat.S_ISDIR(kind))
