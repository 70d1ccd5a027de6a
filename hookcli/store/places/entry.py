"""What a folder holds under one name, and how a file is named while it is written."""

from __future__ import annotations

from dataclasses import dataclass

PARTIAL = ".partial-"  # prefix of the name of a file that is being written


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
