"""Folders as they lie on disk: which is which, what is in them, and whether a run wrote them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hookcli.store import names, ownership

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    """Whether a run stands in a folder; files of these names may be another tool's."""
    marks = {names.REQUEST, names.MANIFEST}
    return any(entry.name in marks for entry in inside) and ownership.is_run(Path(folder))


def wanted(
    entries: Iterable[os.DirEntry[str]], suffixes: tuple[str, ...], *, recursive: bool
) -> Iterator[tuple[str, bool]]:
    """The path of each file with such a suffix and, if ``recursive``, of each folder, and whether it is a folder."""
    for entry in entries:
        if entry.name.startswith("."):
            continue
        is_file = entry.name.lower().endswith(suffixes)
        is_folder = _is_folder(entry, is_file=is_file)
        if recursive if is_folder else is_file:
            yield entry.path, is_folder


def _is_folder(entry: os.DirEntry[str], *, is_file: bool) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed: whoever opens it says why
        return not is_file
