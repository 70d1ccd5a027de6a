"""The journals of a run: the name of each of its files, added before the file is written.

Whatever happens to the run, the files that it may have written are known, and no other file is ever
changed or deleted. A run has one journal, and each chunk that another process writes has one of its
own.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from hookcli.files import cannot_write, write_all
from hookcli.store.places.directory import Directory
from hookcli.store.places.names import JOURNAL, LATER_JOURNAL, PARTS, is_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hookcli.store.places.folders import AnyFolder
    from hookcli.store.places.remote_folder import RemoteFolder


class Journal:
    """The journal of an unfinished run, open for more names."""

    def __init__(self, folder: Directory, names: Iterable[str]) -> None:
        """Start a journal with ``names``.

        Raises:
            OSError: the file cannot be opened.
            OutputError: the file cannot be written.
        """
        write_journal(folder, JOURNAL, names)
        self._file = folder.path / JOURNAL
        self._descriptor = folder.open_inside(JOURNAL, os.O_WRONLY | os.O_APPEND)

    def add(self, names: Iterable[str]) -> None:
        """Add names.

        Raises:
            OutputError: they cannot be written.
        """
        _append(self._descriptor, b"".join(map(_to_line, names)), self._file)

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: the file cannot be closed, as happens when the disk is full.
        """
        os.close(self._descriptor)


class RemoteJournal:
    """The journal of an unfinished run in a storage, where no file can be added to.

    The names that are added later stand in a second file, which is written again each time.
    """

    def __init__(self, folder: RemoteFolder, names: Iterable[str]) -> None:
        """Start a journal with ``names``.

        Raises:
            OutputError: the file cannot be written.
        """
        self._folder = folder
        self._later = [LATER_JOURNAL]
        write_journal(folder, JOURNAL, {*names, LATER_JOURNAL})
        folder.remove([LATER_JOURNAL])  # of the journal so far

    def add(self, names: Iterable[str]) -> None:
        """Add names.

        Raises:
            OutputError: they cannot be written.
        """
        self._later += names
        self._folder.write(LATER_JOURNAL, b"".join(map(_to_line, self._later)))

    def close(self) -> None:
        """Do nothing: no file is open."""


def start_journal(folder: AnyFolder, names: Iterable[str]) -> Journal | RemoteJournal:
    """Start a journal with ``names``.

    Raises:
        OSError: the file cannot be opened.
        OutputError: the file cannot be written.
    """
    if isinstance(folder, Directory):
        return Journal(folder, names)
    return RemoteJournal(folder, names)


def write_journal(folder: AnyFolder, journal: str, names: Iterable[str]) -> None:
    """Write a journal with ``names`` and its own name.

    Raises:
        OutputError: the file cannot be written.
    """
    folder.write(journal, b"".join(_to_line(name) for name in sorted({*names, journal})))


def read_journals(folder: AnyFolder) -> Iterator[str]:
    """Yield the names in all journals; a cut-off last line names a file that was never written."""
    journals = [name for name, entry in folder.entries(PARTS) if is_journal(name) and entry.is_file]
    for data in folder.read_all(journals):
        yield from read_journal(data)


def read_journal(data: bytes) -> Iterator[str]:
    """Yield the names in the content of a journal."""
    for line in data.split(b"\n")[:-1]:
        try:
            name = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(name, str):
            yield name


def _append(descriptor: int, lines: bytes, file: Path) -> None:
    """Add lines to the journal; if not all can be written whole, they are removed again.

    Raises:
        OutputError: they cannot be written.
    """
    before = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, lines)
    except OSError as error:
        os.ftruncate(descriptor, before)
        raise cannot_write(file, error) from error


def _to_line(name: str) -> bytes:
    return f"{json.dumps(name)}\n".encode()
