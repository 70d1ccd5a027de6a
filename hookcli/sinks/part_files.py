"""The parts of a run that is going on, put away in the run folder, and read again by ``--resume``."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import msgspec

from hookcli.files import write_atomic
from hookcli.parts import Part

if TYPE_CHECKING:
    from pathlib import Path

FOLDER, TOP = "parts", "top.npz"


def write_part(folder: Path, part: Part) -> None:
    """Put a part away; everything else that it wrote must be on disk.

    Raises:
        OutputError: it cannot be written.
    """
    text = json.dumps(msgspec.to_builtins(part))  # JSON of its own: names may not be UTF-8
    write_atomic(folder / FOLDER / f"{part.number:06d}.json", text.encode())


def read_part(folder: Path, number: int) -> Part | None:
    """The part, or None where it is missing or damaged."""
    try:
        text = (folder / FOLDER / f"{number:06d}.json").read_bytes()
        return msgspec.convert(json.loads(text), Part)
    except (OSError, ValueError, msgspec.ValidationError):
        return None


def write_top(folder: Path, data: bytes) -> None:
    """Put the top images away, with the number of parts that they cover.

    Raises:
        OutputError: it cannot be written.
    """
    write_atomic(folder / FOLDER / TOP, data)


def read_top(folder: Path) -> bytes:
    """What ``write_top`` put away; empty when there is nothing."""
    try:
        return (folder / FOLDER / TOP).read_bytes()
    except OSError:
        return b""


def remove_parts(folder: Path, first: int = 0) -> None:
    """Delete the parts from ``first`` on, and the folder with the last of them."""
    for file in sorted((folder / FOLDER).glob("[0-9]*.json")):
        if int(file.stem) >= first:
            file.unlink()
    if first == 0:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
