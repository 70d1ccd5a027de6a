"""Files opened for reading, files written complete or not at all, and names that are safe on disk. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from typing import IO, TYPE_CHECKING

from hookcli.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

_NAME_LENGTH = 120


class NotRegularError(OSError):
    """A name stands for a pipe, a device or a socket, which is never opened."""


def open_regular(file: str | Path) -> BufferedReader:
    """Open a file for reading, and nothing but a regular file; a link to one is followed.

    A read from a pipe or a device could last for ever. The kind is looked at before opening, so that
    a writer who waits at a pipe is not disturbed, and again on the open descriptor, which nobody can
    exchange.

    Raises:
        NotRegularError: it is a pipe, a device or a socket.
        OSError: it cannot be opened, or is a folder.
        ValueError: there is a NUL in the name.
    """
    _check_regular(os.stat(file), file)  # noqa: PTH116  names may not be UTF-8
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(file, flags)
    try:
        _check_regular(os.fstat(descriptor), file)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")  # noqa: PTH123


def read_regular(file: str | Path, most: int | None = None) -> bytes:
    """Read the whole of a regular file, of at most ``most`` bytes.

    Raises:
        OSError: as ``open_regular``, or the file is larger.
        ValueError: there is a NUL in the name.
    """
    with open_regular(file) as stream:
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
    """The file by its full name, which stays true wherever code of others takes the process.

    As it is where the working directory has been deleted.
    """
    try:
        return file.absolute()
    except OSError:
        return file


def write_atomic(file: Path, data: bytes) -> Path:
    """Write ``data`` so that ``file`` is complete or not there at all; folders are made.

    Raises:
        OutputError: it cannot be written; nothing of it is left behind.
    """
    with open_atomic(file) as stream:
        stream.write(data)
    return file


@contextlib.contextmanager
def open_atomic(file: Path) -> Iterator[IO[bytes]]:
    """A stream whose content becomes ``file`` where the ``with`` block ends without an error.

    Raises:
        OutputError: it cannot be written; nothing of it is left behind.
    """
    temporary = file.with_name(f".partial-{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as stream:
            yield stream
        temporary.replace(file)
    except OSError as error:
        raise cannot_write(file, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def hash_file(file: str | Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cannot_write(file: Path, error: OSError) -> OutputError:
    """The error for a file or folder that the system would not let be written."""
    room = "make room, or " * is_full(error)
    return OutputError(
        f"cannot write {str(file)!r}: {error.strerror or error}",
        f"{room}choose another folder with -o",
    )


def cannot_read(file: Path, error: OSError) -> OutputError:
    """The error for a file of the run folder that the system would not let be read."""
    return OutputError(
        f"cannot read {str(file)!r}: {error.strerror or error}", "choose another folder with -o"
    )


def is_full(error: BaseException | None) -> bool:
    """Whether the system had no room left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def safe_name(text: str, length: int = _NAME_LENGTH) -> str:
    """``text`` as part of a file name on any system: letters, digits and ``._-`` of ASCII."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:length] or "unnamed"
