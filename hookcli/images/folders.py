"""Folders on disk: their identity, their content, and whether a run wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookcli.store import ownership
from hookcli.store.places import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Identity: TypeAlias = tuple[int, int]


def identity(folder: str | Path) -> Identity:
    """Return what identifies a folder under any name.

    Resolving the names would take much longer.
    """
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the content of a folder, sorted by name as bytes."""
    with os.scandir(folder) as inside:
        return sorted(inside, key=lambda entry: os.fsencode(entry.name))


def is_run(folder: str, inside: Iterable[os.DirEntry[str]]) -> bool:
    """Return whether a run is in a folder; files of these names may be a different tool's."""
    marks = {names.REQUEST, names.MANIFEST}
    return any(entry.name in marks for entry in inside) and ownership.is_run(Path(folder))


def wanted(
    inside: Iterable[os.DirEntry[str]], suffixes: tuple[str, ...], *, recursive: bool
) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file with such a suffix and, if ``recursive``, of each folder.

    The second value tells whether it is a folder. Hidden files and folders are left out.
    """
    for entry in inside:
        if entry.name.startswith("."):
            continue
        is_file = entry.name.lower().endswith(suffixes)
        is_folder = _is_folder(entry, is_file=is_file)
        if recursive if is_folder else is_file:
            yield entry.path, is_folder


def _is_folder(entry: os.DirEntry[str], *, is_file: bool) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed; the code that opens it reports why
        return not is_file
