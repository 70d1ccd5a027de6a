"""A zip archive with two central directories: ``zipfile`` reads one, and torch the other."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from typing import TypeAlias

import torch

Members: TypeAlias = Sequence[tuple[str, bytes]]

END = "<4s4H2IH"  # of an archive


def saved(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def members_of(content: bytes) -> list[tuple[str, bytes]]:
    """The names and the contents of the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def with_two_directories(shown: Members, hidden: Members, compression: int = 0) -> bytes:
    """An archive in which ``zipfile`` finds the members ``shown``, and torch ``hidden``.

    Both must have the same names. ``zipfile`` looks for the directory right before the end of the
    file; torch looks at the offset that the end names.
    """
    first, directory, count = _halves(hidden, compression)
    second, last, _ = _halves(shown, 0)
    first += bytes(max(0, len(second) - len(first)))
    begin = len(first) + len(directory)
    moved = len(directory) + len(second)  # zipfile adds this to each offset in its directory
    last = _move(last, begin - moved)
    end = struct.pack(END, b"PK\5\6", 0, 0, count, count, len(last), len(first), 0)
    return first + directory + second + last + end


def _halves(members: Members, compression: int) -> tuple[bytes, bytes, int]:
    """The members of an archive with their contents, its directory, and the number of members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    data = stream.getvalue()
    *_, count, length, start, _ = struct.unpack(END, data[-struct.calcsize(END) :])
    return data[:start], data[start : start + length], count


def _move(directory: bytes, by: int) -> bytes:
    """Add a number to the offset of each member in a directory."""
    moved, entry = bytearray(directory), 0
    while entry < len(moved):
        lengths = struct.unpack_from("<3H", moved, entry + 28)
        (offset,) = struct.unpack_from("<I", moved, entry + 42)
        struct.pack_into("<I", moved, entry + 42, (offset + by) & 0xFFFFFFFF)
        entry += 46 + sum(lengths)
    return bytes(moved)
