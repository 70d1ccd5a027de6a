"""The journals of a run, in which hookcli lists each file before it writes the file.

Even if a run is killed, hookcli therefore knows the files that the run may have written, and never
changes or deletes other files. A run has one journal; each chunk that another process writes has a
journal of its own. The functions raise an OutputError if a journal cannot be written.
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
        write_journal(folder, JOURNAL, {*names, *folder.journals})
        self._log = folder.open_log(folder.journals[-1])

    def add(self, names: Iterable[str]) -> None:
        """Add the names of files to the journal."""
        self._log.add(b"".join(map(_to_line, names)))

    def close(self) -> None:
        """Close the journal."""
        self._log.close()


def write_journal(folder: Folder, journal: str, names: Iterable[str]) -> None:
    """Write the file ``journal``, which lists ``names`` and its own name."""
    folder.write(journal, b"".join(_to_line(name) for name in sorted({*names, journal})))


def read_journals(folder: Folder) -> Iterator[str]:
    """Yield the file names in all journals of a run folder.

    An incomplete last line is left out: the file of that line was not yet written.
    """
    journals = [name for name, entry in folder.entries(PARTS) if is_journal(name) and entry.is_file]
    for data in folder.read_all(journals):
        yield from read_journal(data)


def read_journal(data: bytes) -> Iterator[str]:
    """Yield the file names in the content of a journal, except incomplete or damaged lines."""
    for line in data.split(b"\n")[:-1]:
        try:
            name = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(name, str):
            yield name


def _to_line(name: str) -> bytes:
    return f"{json.dumps(name)}\n".encode()
