"""The journal of a run: the name of every file of it, written down before the file is.

Whatever happens to the run, what it may have written is known, and nothing else is ever changed or deleted.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from hookcli.files import cannot_write
from hookcli.store.names import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hookcli.store.directory import Directory


class Journal:
    """The journal of a run that is going on, open for more names."""

    def __init__(self, folder: Directory, names: Iterable[str] = ()) -> None:
        """Begin it anew with ``names`` or, without any, go on with the one that is there.

        Raises:
            OSError: it cannot be opened.
            OutputError: it cannot be written.
        """
        names = {*names}
        if names or not folder.is_file(JOURNAL):
            folder.write(JOURNAL, b"".join(_to_line(name) for name in sorted({*names, JOURNAL})))
        self._file = folder.path / JOURNAL
        self._descriptor = folder.open_inside(JOURNAL, os.O_WRONLY | os.O_APPEND)

    def add(self, name: str) -> None:
        """Write down a name.

        Raises:
            OutputError: it cannot be written.
        """
        _append(self._descriptor, _to_line(name), self._file)

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: the system cannot, of a disk that is full.
        """
        os.close(self._descriptor)


def read_journal(folder: Directory) -> Iterator[str]:
    """The names in the journal; a last line that was cut off is of a file that was not written."""
    lines = (folder.read(JOURNAL) or b"").split(b"\n")
    for line in lines[:-1]:
        try:
            name = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(name, str):
            yield name


def _append(descriptor: int, line: bytes, file: Path) -> None:
    """Add a line to the journal; a line that cannot be written whole is taken out again.

    Raises:
        OutputError: it cannot be written.
    """
    before = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, line)
    except OSError as error:
        os.ftruncate(descriptor, before)
        raise cannot_write(file, error) from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in as many calls as the system takes.

    Raises:
        OSError: it cannot be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _to_line(name: str) -> bytes:
    return f"{json.dumps(name)}\n".encode()
