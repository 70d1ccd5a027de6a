"""Write, read, delete and lock files in a folder on this machine, and follow no link."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.outside import files
from hookcli.outside.locks import take_lock
from hookcli.store.locations.folder import Entry, Folder, Lock
from hookcli.store.locations.names import LOCK, PARTIAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES = 1 << 30  # the largest file that is read

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # or a link, which hookcli does not follow
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_MOMENT = 0.2  # seconds to wait: a command that checks for the lock takes it for a moment


class Directory(Folder):
    """A folder on this machine. Its own path may contain links; hookcli follows none inside it."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = files.full_name(path)  # the model's code may change the working directory
        self._facts = self._root.stat()
        if not stat.S_ISDIR(self._facts.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def lock(self) -> DirectoryLock:
        return DirectoryLock(self, self._root / LOCK)

    def refuse_locked(self) -> None:
        if self.is_file(LOCK):
            with suppress(OSError):
                self.lock().close()

    def is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._root.stat(), self._facts)
        except OSError:
            return False

    def read(self, name: str) -> bytes | None:
        """Return a regular file's content, or None; raise an OutputError for more than 1 GiB."""
        try:
            file = self._locate(name)
            return files.read_regular(file, MOST_BYTES) if _to_entry(file.lstat()).is_file else None
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            what = f"cannot read {str(self.path / name)!r}: {error.strerror or error}"
            raise OutputError(what, files.ANOTHER) from error

    def read_part(self, name: str, start: int, stop: int) -> bytes:
        with files.open_regular(self._locate_file(name)) as stream:
            stream.seek(start)
            return stream.read(stop - start)

    def write(self, name: str, data: bytes) -> str:
        """Write a file as ``.partial-NAME``, and rename it when it is complete."""
        # If a killed process left such a file, the caller must delete it (``list_partial``).
        with self._explain(name):
            file = self._locate(name, make=True)
            partial = file.with_name(PARTIAL + file.name)
            stream = partial.open("xb")
            try:
                with stream:
                    stream.write(data)
                files.replace_file(partial, file)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
        return name

    def adopt(self, name: str, file: Path) -> None:
        files.replace_file(file, self._locate(name, make=True))

    def append(self, name: str, data: bytes) -> None:
        with self._explain(name), self._locate_file(name).open("ab", buffering=0) as stream:
            before = stream.tell()
            try:
                files.write_all(stream.fileno(), data)
            except OSError:
                stream.truncate(before)
                raise

    def find(self, name: str) -> Entry | None:
        with self._explain(name), suppress(FileNotFoundError):
            return _to_entry(self._locate(name).lstat())
        return None

    def is_file(self, name: str) -> bool:
        try:
            return _to_entry(self._locate(name).lstat()).is_file
        except OSError:
            return False

    def remove(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            if not self.is_file(name):
                continue
            with self._explain(name):
                self._locate(name).unlink(missing_ok=True)
            with suppress(OSError):  # at once, so that a kill leaves no empty folders
                for folder in Path(name).parents[:-1]:
                    self._locate(folder.as_posix()).rmdir()

    def list_partial(self, names: Iterable[str]) -> set[str]:
        parts = (name.rpartition("/") for name in names)
        return set(filter(self.is_file, (f"{top}{s}{PARTIAL}{last}" for top, s, last in parts)))

    def entries(self, name: str = "") -> Iterator[tuple[str, Entry]]:
        prefix = f"{name}/" if name else ""
        try:
            with os.scandir(self._locate(f"{prefix}x").parent) as inside:
                found = {}
                for each in inside:
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        found[each.name] = each.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return
            raise files.cannot_write(self.path / name, error) from error
        for last in sorted(found):
            if last != LOCK and not last.startswith(files.TEMPORARY):
                yield prefix + last, _to_entry(found[last])

    def _locate(self, name: str, *, make: bool = False) -> Path:
        if not is_inside(name):
            raise ValueError(f"{name!r} is not a name inside a folder")
        *folders, last = name.split("/")
        path = self._root
        for part in folders:
            path /= part
            if make:
                with suppress(FileExistsError):
                    path.mkdir()
            if files.is_link(path.lstat()):
                raise OSError(
                    errno.ELOOP, "a folder in its name is a link, which is never followed"
                )
        return path / last

    def _locate_file(self, name: str) -> Path:
        file = self._locate(name)
        with suppress(FileNotFoundError):
            if files.is_link(file.lstat()):
                raise OSError(errno.ELOOP, "it is a link, which is never followed")
        return file

    @contextmanager
    def _explain(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise files.cannot_write(self.path / name, error) from error


class DirectoryLock(Lock):
    def __init__(self, folder: Directory, file: Path) -> None:
        self._folder = folder
        found = folder.find(LOCK)
        if found is not None and (found.size or not found.is_file):
            raise files.not_ours_error(folder.path / LOCK)
        try:
            lock = take_lock(file, _MOMENT)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise OutputError(
                f"the file system of {str(folder.path)!r} has no locks, so two runs could write "
                "there at once",
                files.ANOTHER,
            ) from error
        if lock is None:
            what = f"another run is writing into {str(folder.path)!r}"
            raise OutputError(what, "wait for it, or choose another `out`")
        self._lock = lock

    def check(self) -> None:
        if not self._folder.is_in_place():
            raise OutputError(
                f"the folder {str(self._folder.path)!r} was deleted or moved "
                "while the run was writing into it",
                "run the same command again",
            )

    def close(self) -> None:
        self._lock.release()


def is_inside(name: str) -> bool:
    """Return whether a name stays inside its folder, unlike a forged ``../x``."""
    parts = name.split("/")  # on Windows, Path("C:x").name is "x"
    return name.isprintable() and all(p and p != ".." and Path(p).name == p for p in parts)


def _to_entry(facts: os.stat_result) -> Entry:
    kind, link = facts.st_mode, files.is_link(facts)
    return Entry(
        facts.st_size,
        is_file=stat.S_ISREG(kind) and not link,
        is_folder=stat.S_ISDIR(kind) and not link,
    )
