"""The journals of a run: the name of each of its files, added before the file is written.

So whatever happens to the run, hookcli knows the files that it may have written, and never changes
or deletes others. A run has one journal; each chunk that another process writes has its own. A
journal that cannot be written is an OutputError.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hookcli.store.places.names import JOURNAL, PARTS, is_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hookcli.store.places.folder import Folder


class Journal:
    """The open journal of an unfinished run."""

    def __init__(self, folder: Folder, names: Iterable[str]) -> None:
        """Replace the journal by a new one with ``names``.

        Raises:
            OSError: the file cannot be opened.
        """
        write_journal(folder, JOURNAL, {*names, *folder.journals})
        self._log = folder.open_log(folder.journals[-1])

    def add(self, names: Iterable[str]) -> None:
        """Add names."""
        self._log.add(b"".join(map(_to_line, names)))

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: the file cannot be closed, as happens when the disk is full.
        """
        self._log.close()


def write_journal(folder: Folder, journal: str, names: Iterable[str]) -> None:
    """Write a journal that lists ``names`` and itself."""
    folder.write(journal, b"".join(_to_line(name) for name in sorted({*names, journal})))


def read_journals(folder: Folder) -> Iterator[str]:
    """Yield the names in all journals, without a cut-off last line: its file was never written."""
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


def _to_line(name: str) -> bytes:
    return f"{json.dumps(name)}\n".encode()
