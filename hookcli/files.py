"""Files that are complete or absent, and names that are safe on disk. Standard library only."""

from __future__ import annotations

import contextlib
import re
import secrets
from typing import TYPE_CHECKING

from hookcli.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path

_NAME_LENGTH = 120


def write_atomic(file: Path, data: bytes) -> Path:
    """Write ``data`` so that ``file`` is complete or not there at all; folders are made.

    Raises:
        OutputError: it cannot be written; nothing of it is left behind.
    """
    temporary = file.with_name(f".partial-{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as stream:
            stream.write(data)
        temporary.replace(file)
    except OSError as error:
        raise cannot_write(file, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return file


def cannot_write(file: Path, error: OSError) -> OutputError:
    """The error for a file or folder that the system would not let be written."""
    return OutputError(
        f"cannot write {str(file)!r}: {error.strerror or error}", "choose another folder with -o"
    )


def safe_name(text: str, length: int = _NAME_LENGTH) -> str:
    """``text`` as part of a file name on any system: letters, digits and ``._-`` of ASCII."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:length] or "unnamed"
