"""Files that are complete or absent, and names that are safe on disk. Standard library only."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from hookcli.errors import OutputError

_NAME_LENGTH = 120


def write_atomic(file: Path, data: bytes) -> Path:
    """Write ``data`` so that ``file`` is complete or not there at all; folders are made.

    Raises:
        OutputError: it cannot be written; nothing of it is left behind.
    """
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".partial-", dir=file.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(file)
    except OSError as error:
        raise cannot_write(file, error) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return file


def cannot_write(file: Path, error: OSError) -> OutputError:
    """The error for a file or folder that the system would not let be written."""
    return OutputError(
        f"cannot write {str(file)!r}: {error.strerror or error}", "choose another folder with -o"
    )


def safe_name(text: str, length: int = _NAME_LENGTH) -> str:
    """``text`` as part of a file name on any system: letters, digits and ``._-`` of ASCII."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._")[:length] or "unnamed"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
