"""The journals of a run: the name of each of its files, added before the file is written.

Whatever happens to the run, the files that it may have written are known, and no other file is ever
changed or deleted. A run has one journal, and each chunk that another process writes has one of its
own until the chunk belongs to the run.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from hookcli.files import cannot_write
from hookcli.store.names import JOURNAL, PARTS, is_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hookcli.store.directory import Directory


class Journal:
    """The journal of an unfinished run, open for more names."""

    def __init__(self, folder: Directory, names: Iterable[str] = ()) -> None:
        """Start a journal with ``names``; without any, go on with the existing one.

        Raises:
            OSError: the file cannot be opened.
            OutputError: the file cannot be written.
        """
        names = {*names}
        if names or not folder.is_file(JOURNAL):
            write_journal(folder, JOURNAL, names)
        self._file = folder.path / JOURNAL
        self._descriptor = folder.open_inside(JOURNAL, os.O_WRONLY | os.O_APPEND)

    def add(self, name: str) -> None:
        """Add a name.

        Raises:
            OutputError: the name cannot be written.
        """
        _append(self._descriptor, _to_line(name), self._file)

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: the file cannot be closed, as happens when the disk is full.
        """
        os.close(self._descriptor)


def write_journal(folder: Directory, journal: str, names: Iterable[str]) -> None:
    """Write a journal with ``names`` and its own name.

    Raises:
        OutputError: the file cannot be written.
    """
    folder.write(journal, b"".join(_to_line(name) for name in sorted({*names, journal})))


def read_journals(folder: Directory) -> Iterator[str]:
    """Yield the names in all journals; a cut-off last line names a file that was never written."""
    for journal in [JOURNAL, *(name for name, _ in folder.entries(PARTS) if is_journal(name))]:
        yield from _read_journal(folder.read(journal) or b"")


def _read_journal(data: bytes) -> Iterator[str]:
    for line in data.split(b"\n")[:-1]:
        try:
            name = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(name, str):
            yield name


def _append(descriptor: int, line: bytes, file: Path) -> None:
    """Add a line to the journal; a line that cannot be written whole is removed again.

    Raises:
        OutputError: the line cannot be written.
    """
    before = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, line)
    except OSError as error:
        os.ftruncate(descriptor, before)
        raise cannot_write(file, error) from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, in as many calls as the system needs.

    Raises:
        OSError: they cannot be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _to_line(name: str) -> bytes:
    return f"{json.dumps(name)}\n".encode()
