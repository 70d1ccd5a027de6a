"""Save the chunks (groups of images) of an unfinished run, and read them for ``--resume``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hookcli.outside.documents import DamagedError, decode_escaped, encode_escaped
from hookcli.store.journal import read_journal, write_journal
from hookcli.store.locations.folders import open_folder
from hookcli.store.locations.names import TOP, chunk_file, chunk_journal
from hookcli.summary.chunks import Chunk
from hookcli.summary.top_images import TopTally, read_top_images

if TYPE_CHECKING:
    from hookcli.outside.urls import Location
    from hookcli.store.folder import RunFolder


def write_chunk(folder: RunFolder, chunk: Chunk) -> None:
    """Save the results of a chunk. Call this only when all other files of the chunk are on disk."""
    folder.write(chunk_file(chunk.number), _add_hash(encode_escaped(chunk)))


def read_chunk(folder: RunFolder, number: int) -> Chunk | None:
    text = _read_checked(folder, chunk_file(number))
    try:
        return None if text is None else decode_escaped(text, Chunk)
    except DamagedError:
        return None


def write_top(folder: RunFolder, top: TopTally) -> None:
    folder.write(TOP, _add_hash(top.to_bytes()))


def read_top(folder: RunFolder, images: int) -> TopTally | None:
    text = _read_checked(folder, TOP)
    return None if text is None else read_top_images(text, images)


def remove_chunks(folder: RunFolder, first: int) -> None:
    """Delete saved chunks numbered ``first`` or more, and the lists of files of all chunks."""
    folder.remove(folder.list_chunks() - {TOP, *map(chunk_file, range(first))})


def hash_line(text: bytes) -> bytes:
    return f"{hashlib.sha256(text).hexdigest()}\n".encode()


def _read_checked(folder: RunFolder, name: str) -> bytes | None:
    data = folder.read(name) or b""
    text = data.partition(b"\n")[2]
    return text if data.startswith(hash_line(text)) else None


def _add_hash(text: bytes) -> bytes:
    return hash_line(text) + text


class ChunkFiles:
    """Keeps the files of a chunk in memory until the chunk is complete and ``save`` writes them."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> str:  # several threads may call this at once
        self._files[name] = data
        return name

    def save(self, location: Location, chunk: Chunk) -> None:
        # An earlier process may have been killed while it saved the same chunk: its other files are
        # deleted. A run folder that no longer exists raises an OSError.
        last, journal = chunk_file(chunk.number), chunk_journal(chunk.number)
        folder = open_folder(location)
        before = {*read_journal(folder.read(journal) or b"")} - {journal, last, *self._files}
        folder.remove(folder.list_partial({*before, *self._files, last, journal}))
        write_journal(folder, journal, {*before, *self._files, last})
        folder.write_all(self._files)
        folder.write(last, _add_hash(encode_escaped(chunk)))
        folder.remove(before)
