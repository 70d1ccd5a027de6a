"""Folders as they lie on disk: which is which, what is in them, and whether a run wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookcli.files import is_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

Identity: TypeAlias = tuple[int, int]


def identity(folder: str | Path) -> Identity:
    """What a folder is known by whatever its name; resolving names would cost far more."""
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name as bytes."""
    with os.scandir(folder) as inside:
        return sorted(inside, key=lambda entry: os.fsencode(entry.name))


def is_run(folder: str, inside: Iterable[os.DirEntry[str]]) -> bool:
    """Whether a run stands in a folder; a ``manifest.json`` may be another tool's."""
    names = {entry.name for entry in inside}
    if "run.json" in names or "manifest.json" not in names:
        return "run.json" in names
    return is_manifest(Path(folder, "manifest.json"))
