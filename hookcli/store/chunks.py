"""Chunks of an unfinished run, saved in the run folder and read again by ``--resume``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hookcli.outside.documents import DamagedError, decode_escaped, encode_escaped
from hookcli.store.places.names import TOP, chunk_file
from hookcli.summary.chunks import Chunk
from hookcli.summary.top_images import TopImages, read_top_images

if TYPE_CHECKING:
    from hookcli.store.folder import RunFolder


_HASH_LINE = 65  # bytes


def write_chunk(folder: RunFolder, chunk: Chunk) -> None:
    """Save a chunk, after everything else that it wrote is on disk.

    Raises:
        OutputError: the file cannot be written.
    """
    text = encode_escaped(chunk)
    folder.write(chunk_file(chunk.number), hash_line(text) + text)


def read_chunk(folder: RunFolder, number: int) -> Chunk | None:
    """Return a saved chunk, or None if it is missing or damaged."""
    data = folder.read(chunk_file(number)) or b""
    first, text = data[:_HASH_LINE], data[_HASH_LINE:]
    try:
        return decode_escaped(text, Chunk) if first == hash_line(text) else None
    except DamagedError:
        return None


def write_top(folder: RunFolder, top: TopImages) -> None:
    """Save the top images, with the number of chunks that they cover.

    Raises:
        OutputError: the file cannot be written.
    """
    folder.write(TOP, top.to_bytes())


def read_top(folder: RunFolder, images: int) -> TopImages | None:
    """Return what ``write_top`` saved, or None if there is nothing or it is damaged."""
    data = folder.read(TOP)
    return None if data is None else read_top_images(data, images)


def remove_chunks(folder: RunFolder, first: int) -> None:
    """Delete the saved chunks from number ``first`` on.

    Raises:
        OutputError: a file cannot be deleted.
    """
    kept = {TOP, *map(chunk_file, range(first))}
    folder.remove(folder.list_chunks() - kept)


def hash_line(text: bytes) -> bytes:
    """Return the first line of a saved chunk: the hash of its text.

    Without it, a number that was changed on disk would go into every total unnoticed.
    """
    return f"{hashlib.sha256(text).hexdigest()}\n".encode()
