"""Files that are complete or absent, and names that are safe on disk. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import secrets
from typing import IO, TYPE_CHECKING

from hookcli.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME_LENGTH = 120


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


def is_manifest(file: Path) -> bool:
    """Whether a ``manifest.json`` is a run's; other tools write files of this name."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"hookcli", "files"} <= content.keys()


def hash_file(file: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cannot_write(file: Path, error: OSError) -> OutputError:
    """The error for a file or folder that the system would not let be written."""
    room = "make room, or " * is_full(error)
    return OutputError(
        f"cannot write {str(file)!r}: {error.strerror or error}",
        f"{room}choose another folder with -o",
    )


def is_full(error: BaseException | None) -> bool:
    """Whether the system had no room left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def safe_name(text: str, length: int = _NAME_LENGTH) -> str:
    """``text`` as part of a file name on any system: letters, digits and ``._-`` of ASCII."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:length] or "unnamed"
