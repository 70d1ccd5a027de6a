"""Read regular files, write files atomically, hash and sort files, and make safe file names."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from hookcli.errors import OutputError
from hookcli.outside.locks import take_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

    from hookcli.outside.urls import Location

ANOTHER = "choose another folder with `out`"  # a hint
_NAME_LENGTH = 120
TEMPORARY = ".hookcli-"  # how the name of a temporary folder begins
_LOCK, _UNFINISHED = "lock", "unfinished"  # the two entries of a temporary folder
_PATIENCE = 1.0  # seconds of retries: Windows cannot replace a file that a program has open
_FLAGS = ("O_NONBLOCK", "O_NOCTTY", "O_BINARY")  # no system has all of them
_JUNCTION = 0xA0000003  # stat.IO_REPARSE_TAG_MOUNT_POINT, which only Windows has
_NUMBER = re.compile(rb"[0-9]+")
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")  # a Path drops the second slash of a URL


class OutsideError(OSError):
    """Raised for a file in a run folder that is a link to a file outside the run folder."""


class NotRegularError(OSError):
    """Raised for a path to a pipe, a device or a socket, which hookcli never opens."""


def natural_key(path: str) -> list[tuple[bytes, bytes]]:
    """Return a key that sorts paths and URLs folder by folder, and ``a2`` before ``a10``."""
    return [(_NUMBER.sub(_rank_number, part), part) for part in os.fsencode(path).split(b"/")]


def _rank_number(number: re.Match[bytes]) -> bytes:
    digits = number[0].lstrip(b"0")
    return b"0" + len(digits).to_bytes(4) + digits


def open_regular(file: str | Path) -> BufferedReader:
    """Open a regular file; raise an OSError for others, and a ValueError for names with NUL."""
    # Reading from a pipe or a device could last forever, and opening a pipe would disturb a process
    # that waits to write into it. The second check is for files that are replaced in between.
    _check_regular(os.stat(file), file)  # noqa: PTH116  names may not be UTF-8
    descriptor = os.open(file, os.O_RDONLY | sum(getattr(os, name, 0) for name in _FLAGS))
    try:
        _check_regular(os.fstat(descriptor), file)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")  # noqa: PTH123


def read_regular(file: str | Path, most: int | None = None) -> bytes:
    with open_regular(file) as stream:
        return read_stream(stream, file, most)


def read_stream(stream: BinaryIO, file: str | Path, most: int | None) -> bytes:
    data = stream.read() if most is None else stream.read(most + 1)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"has more than {most:,} bytes", str(file))
    return data


def _check_regular(facts: os.stat_result, file: str | Path) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if not stat.S_ISREG(facts.st_mode):
        raise NotRegularError(errno.EINVAL, "is not a regular file", str(file))


def full_name(file: Path) -> Path:
    """Return an absolute path, or ``file`` if the working directory has been deleted."""
    try:
        return file.absolute()
    except OSError:
        return file


def real_path(file: Path) -> Path:
    """Resolve all links in a path; unlike ``Path.resolve``, this accepts a loop of links."""
    return Path(os.path.realpath(file))


def split_key(name: str) -> tuple[str, str]:
    """Split ``FILE:KEY`` into a file's name and a key; the key is "" if ``name`` has none."""
    # The key is empty if the whole name exists, or if FILE is not a file.
    file, _, key = name.rpartition(":")
    is_part = key and not os.path.exists(name) and os.path.isfile(file)  # noqa: PTH110, PTH113
    return (file, key) if is_part else (name, "")


def write_atomic(file: Path, data: bytes) -> Path:
    with open_atomic(file) as stream:
        stream.write(data)
    return file


@contextlib.contextmanager
def open_atomic(file: Path) -> Iterator[IO[bytes]]:
    refuse_url(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(file.parent) as folder:
            with (folder / file.name).open("xb") as stream:
                yield stream
            replace_file(folder / file.name, file)
    except OSError as error:
        raise cannot_write(file, error) from error


@contextlib.contextmanager
def scratch_folder(prefix: str = "hookcli-", parent: Path | None = None) -> Iterator[Path]:
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        try:
            made.cleanup()
        except BaseException:  # after Ctrl-C, too: the folder may hold gigabytes
            made.cleanup()
            raise


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder in ``parent``, and delete folders that killed processes left there."""
    # A folder that no process has locked was left by a killed process.
    for left in parent.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            is_ours = not is_link(left.lstat()) and {*os.listdir(left)} == {_LOCK, _UNFINISHED}  # noqa: PTH208
            facts = (left / _LOCK).lstat()
            is_ours = is_ours and stat.S_ISREG(facts.st_mode) and not facts.st_size
            if is_ours and (lock := take_lock(left / _LOCK)):
                lock.release()
                shutil.rmtree(left)
    with scratch_folder(TEMPORARY, parent) as made, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # not every file system has locks
            if lock := take_lock(made / _LOCK):
                stack.callback(lock.release)
        inner = made / _UNFINISHED
        inner.mkdir()  # from now on, other processes delete the folder unless it is locked
        yield inner


def replace_file(made: Path, file: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            made.replace(file)
            return
        except PermissionError:
            if time.monotonic() > end:
                raise
            time.sleep(_PATIENCE / 50)


def is_link(facts: os.stat_result) -> bool:
    return stat.S_ISLNK(facts.st_mode) or getattr(facts, "st_reparse_tag", 0) == _JUNCTION


def refuse_url(file: Path) -> None:
    if _URL.match(str(file)):
        url = str(file).replace(":/", "://", 1)
        what = f"cannot write {url!r}: a URL can only be the run folder of a run on a cluster"
        raise OutputError(what, "name a file or a folder of this machine")


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def hash_file(file: str | Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cannot_write(file: Location, error: OSError, hint: str = ANOTHER) -> OutputError:
    room = "make room, or " if is_full(error) else ""
    return OutputError(f"cannot write {str(file)!r}: {error.strerror or error}", room + hint)


def not_ours_error(file: Location) -> OutputError:
    what = f"{str(file)!r} was not written by a run, and this run would overwrite it"
    return OutputError(what, ANOTHER)


def is_full(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def safe_name(text: str, length: int = _NAME_LENGTH) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:length] or "unnamed"
