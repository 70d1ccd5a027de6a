"""Write and read the journals of a run, which name each file before hookcli writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hookcli.store.locations.names import PARTS, is_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hookcli.store.locations.folder import Folder


def write_journal(folder: Folder, journal: str, names: Iterable[str]) -> None:
    folder.write(journal, to_lines(sorted({*names, journal})))


def read_journals(folder: Folder) -> Iterator[str]:
    journals = [name for name, entry in folder.entries(PARTS) if is_journal(name) and entry.is_file]
    for data in folder.read_all(journals):
        yield from read_journal(data)


def read_journal(data: bytes) -> Iterator[str]:
    """Yield the file names in a journal; skip an incomplete last line, whose file is missing."""
    for line in data.split(b"\n")[:-1]:
        try:
            name = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(name, str):
            yield name


def to_lines(names: Iterable[str]) -> bytes:
    return b"".join(f"{json.dumps(name)}\n".encode() for name in names)
