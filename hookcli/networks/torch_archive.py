"""Read zip archives of ``torch.save``, but only if Python and torch find the same files in them."""
# A file may hold two central directories, of which Python reads one and torch the other.

from __future__ import annotations

import struct
import zipfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing import BinaryIO

    from torch.types import Storage

_HEADER = "<4s5H3I2H"  # precedes the data of a member
_DESCRIPTORS = (0, 16, 24)  # bytes after the data of a member
_END = "<4s4H2IH"  # the last bytes of the file, before a comment
_LONGEST_COMMENT = 0xFFFF  # bytes
_LOCATOR = "<4sIQI"  # before the end of most files, and before it the end for large files
_LARGE_END = "<4sQ2H2I4Q"
_MOST_UNPACKED = 2  # times the file's size; torch itself does not compress


class OtherArchiveError(ValueError):
    """Raised for a zip archive that ``torch.save`` would not write."""


def load_archive(stream: BinaryIO) -> object:
    """Load what ``torch.save`` wrote, without running code; torch may raise any exception."""
    # Each tensor storage must have a member of the same size: with a shorter one, some versions of
    # torch (at least 2.6 to 2.9) read memory beyond it.
    members = Counter(member.file_size for member in list_members(stream))
    storages: Counter[int] = Counter()

    def count(storage: Storage, _location: str) -> Storage:
        storages[storage.nbytes()] += 1
        return storage

    content: object = torch.load(stream, map_location=count, weights_only=True)
    if storages - members:
        raise ValueError("values are missing")
    return content


def list_members(stream: BinaryIO) -> list[zipfile.ZipInfo]:
    """List the files in a zip archive; raise an OtherArchiveError if torch may read others."""
    # hookcli refuses an archive that has a second directory, gaps, or members that overlap or share
    # a name, or that is much larger unpacked.
    with zipfile.ZipFile(stream) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    end = 0
    spaces = [0]
    for member in members:
        spaces.append(member.header_offset - end)
        *_, name, extra = _read(stream, _HEADER, member.header_offset)
        end = member.header_offset + struct.calcsize(_HEADER) + name + extra + member.compress_size
    spaces.append(_find_directory(stream, len(members)) - end)
    if sum(spaces[:2]) or not {*spaces} <= {*_DESCRIPTORS}:
        raise OtherArchiveError("its members overlap, or there are gaps between them")
    members = [member for member in members if member.file_size or not member.is_dir()]
    names = {member.filename.partition("/")[2] or member.filename for member in members}
    if len({name.lower() for name in names}) < len(members):  # torch ignores the case
        raise OtherArchiveError("several members have the same name")
    unpacked, size = sum(member.file_size for member in members), stream.seek(0, 2)
    if unpacked > _MOST_UNPACKED * size:
        raise OtherArchiveError(f"its {size:,} bytes would become {unpacked:,}")
    stream.seek(0)
    if all("/" in member.filename for member in members):  # else, an archive from before torch 2.8
        records = torch._C.PyTorchFileReader(stream).get_all_records()
        if names != {name for name in records if name and not name.endswith("/")}:
            raise OtherArchiveError("torch finds other members in it")
        stream.seek(0)
    return members


def _find_directory(stream: BinaryIO, members: int) -> int:
    """Return the offset of the zip archive's central directory, which lists ``members`` files.

    Raise an OtherArchiveError if it lists more or fewer, or if there may be a second directory.
    """
    size = stream.seek(0, 2)
    stream.seek(max(0, size - struct.calcsize(_END) - _LONGEST_COMMENT))
    tail = stream.read()
    offset = size - len(tail) + tail.rfind(b"PK\x05\x06")
    mark, *_, count, length, start, comment = _read(stream, _END, offset)
    if offset + struct.calcsize(_END) + comment != size or (comment and tail.count(mark) > 1):
        mark = b""
    before = offset - struct.calcsize(_LOCATOR)
    if before >= 0 and (locator := _read(stream, _LOCATOR, before))[0] == b"PK\x06\x07":
        offset = before - struct.calcsize(_LARGE_END)
        large = _read(stream, _LARGE_END, max(0, offset))
        small, full = (count, length, start), (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
        count, length, start = large[-3:]
        agrees = all(each in pair for each, *pair in zip(small, large[-3:], full, strict=True))
        if large[0] != b"PK\x06\x06" or locator[2] != offset or not agrees:
            mark = b""
    if mark != b"PK\x05\x06" or count != members or start + length != offset:
        raise OtherArchiveError("it may have a second directory")
    return int(start)


def _read(stream: BinaryIO, form: str, offset: int) -> tuple[Any, ...]:
    stream.seek(offset)
    return struct.unpack(form, stream.read(struct.calcsize(form)))
