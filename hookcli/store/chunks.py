"""The parts of a run that is going on, put away in the run folder, and read again by ``--resume``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hookcli.documents import DamagedError, decode_escaped, encode_escaped
from hookcli.store.names import TOP, chunk_file
from hookcli.summary.chunks import Chunk
from hookcli.summary.top_images import TopImages, read_top_images

if TYPE_CHECKING:
    from hookcli.store.folder import RunFolder


_HASH_LINE = 65  # bytes


def write_part(folder: RunFolder, part: Chunk) -> None:
    """Put a part away; everything else that it wrote must be on disk.

    Raises:
        OutputError: it cannot be written.
    """
    text = encode_escaped(part)
    folder.write(chunk_file(part.number), hash_line(text) + text)


def read_part(folder: RunFolder, number: int) -> Chunk | None:
    """The part, or None where it is missing or damaged."""
    data = folder.read(chunk_file(number)) or b""
    first, text = data[:_HASH_LINE], data[_HASH_LINE:]
    try:
        return decode_escaped(text, Chunk) if first == hash_line(text) else None
    except DamagedError:
        return None


def write_top(folder: RunFolder, top: TopImages) -> None:
    """Put the top images away, with the number of parts that they cover.

    Raises:
        OutputError: it cannot be written.
    """
    folder.write(TOP, top.to_bytes())


def read_top(folder: RunFolder, images: int) -> TopImages | None:
    """What ``write_top`` put away; None when there is nothing, or it is damaged.

    Args:
        folder: the run folder.
        images: how many the run has.
    """
    data = folder.read(TOP)
    return None if data is None else read_top_images(data, images)


def remove_parts(folder: RunFolder, first: int) -> None:
    """Delete the parts from ``first`` on.

    Raises:
        OutputError: one cannot be deleted.
    """
    kept = {TOP, *map(chunk_file, range(first))}
    folder.remove(folder.list_parts() - kept)


def hash_line(text: bytes) -> bytes:
    """The line before the text of a part: without it, a number that was changed would go into all sums."""
    return f"{hashlib.sha256(text).hexdigest()}\n".encode()
