"""What a folder holds under one name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder; a link, a pipe or a device is neither.

    Attributes:
        size: its bytes.
        is_file: it is a regular file.
        is_folder: it is a folder.
    """

    size: int
    is_file: bool = False
    is_folder: bool = False
