"""The files of one chunk that another process writes into the run folder: complete or absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.outside.documents import encode_escaped
from hookcli.store.chunks import hash_line
from hookcli.store.journal import read_journal, write_journal
from hookcli.store.places.folders import open_folder
from hookcli.store.places.names import chunk_file, chunk_journal

if TYPE_CHECKING:
    from hookcli.outside.urls import Place
    from hookcli.summary.chunks import Chunk


class ChunkFiles:
    """The files of a chunk, kept in memory until the chunk is complete."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> str:
        """Keep a file and return its name; safe to call from several threads."""
        self._files[name] = data
        return name

    def save(self, place: Place, chunk: Chunk) -> None:
        """Write all files into the run folder: their names first, the chunk itself last.

        A chunk may be saved again by another process, since the one before may have been killed.
        Files that only the one before has written are deleted.

        Raises:
            OSError: the run folder is gone.
            OutputError: a file cannot be written.
        """
        text = encode_escaped(chunk)
        last, journal = chunk_file(chunk.number), chunk_journal(chunk.number)
        with open_folder(place) as folder:
            before = {*read_journal(folder.read(journal) or b"")} - {journal, last, *self._files}
            folder.remove_partial({*before, *self._files, last, journal})
            write_journal(folder, journal, {*before, *self._files, last})
            folder.write_all(self._files)
            folder.write(last, hash_line(text) + text)
            folder.remove(before)
