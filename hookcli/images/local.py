"""Implement ``Filesystem`` for local images; leave out hidden files and folders of runs."""

from __future__ import annotations

import contextlib
import glob as globbing
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hookcli.images.decode import PICTURE_HEAD, is_picture
from hookcli.images.tensor_files import TENSOR_SUFFIXES
from hookcli.outside.files import natural_key, open_regular
from hookcli.records.images import SkippedImage
from hookcli.store import ownership
from hookcli.store.locations import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader


def check(name: str) -> None:
    """Accept any name, because every text may be the name of a file on this machine."""


def open_file(file: str) -> BufferedReader:
    return open_regular(file)


def find_state(file: str) -> tuple[int, int]:
    facts = os.stat(file)  # noqa: PTH116  names may not be UTF-8
    return facts.st_size, facts.st_mtime_ns


def is_folder(name: str) -> bool:
    return os.path.isdir(name)  # noqa: PTH112 - pathlib's may raise


def is_same(folder: str, other: str) -> bool:
    try:
        return bool(other) and _identify(folder) == _identify(other)
    except OSError:
        return False


def name_folder(name: str) -> str:
    full = Path(os.path.realpath(name))  # pathlib's resolve raises if the name is invalid
    return (full if is_folder(str(full)) else full.parent).name


def list_frames(folder: str) -> list[str]:
    inside = sorted(Path(folder).iterdir(), key=lambda file: natural_key(file.name))
    return [str(file) for file in inside if file.is_file() and not file.name.startswith(".")]


def is_pattern(word: str) -> bool:
    return any(each in word for each in "*?[") and not os.path.lexists(word)


def glob(pattern: str) -> list[str]:
    try:
        return globbing.glob(pattern, recursive=True)  # noqa: PTH207
    except ValueError:  # the pattern contains a NUL
        return []


def list_images(
    folder: str, suffixes: tuple[str, ...], *, recursive: bool, leave_out: str
) -> list[str | SkippedImage]:
    """Return the images in ``folder`` and, if ``recursive``, in the folders inside it.

    A file is an image if its name ends in one of ``suffixes`` or, unless these are the suffixes of
    tensor files, if its first bytes are those of a picture.
    """
    found: list[str | SkippedImage] = []
    visited: set[tuple[int, int]] = set()
    waiting = [(folder, True)]
    while waiting:
        name, is_inner = waiting.pop()
        if not is_inner:
            found.append(name)
            continue
        try:
            identity = _identify(name)
            if identity in visited:
                continue
            visited.add(identity)
            with os.scandir(name) as entries:
                inside = sorted(entries, key=lambda entry: natural_key(entry.name))
        except OSError as error:
            found.append(SkippedImage(name, f"cannot be read: {error.strerror or error}"))
            continue
        if not is_same(name, leave_out) and not _is_run(name, inside):
            waiting += reversed(list(_choose(inside, suffixes, recursive=recursive)))
    return found


def _identify(folder: str) -> tuple[int, int]:
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def _is_run(folder: str, inside: Iterable[os.DirEntry[str]]) -> bool:
    """Return whether hookcli wrote the folder: a run, or an analysis."""
    found = {entry.name for entry in inside}
    if names.ANALYSIS in found:
        return b'"hookcli"' in Path(folder, names.ANALYSIS).read_bytes()
    return not found.isdisjoint({names.REQUEST, names.MANIFEST}) and ownership.is_run(Path(folder))


def _choose(
    inside: Iterable[os.DirEntry[str]], suffixes: tuple[str, ...], *, recursive: bool
) -> Iterator[tuple[str, bool]]:
    for entry in inside:
        if entry.name.startswith("."):
            continue
        is_file = entry.name.lower().endswith(suffixes)
        if suffixes != TENSOR_SUFFIXES:
            is_file = is_file or _begins_as_picture(entry)
        try:
            is_inner = entry.is_dir()
        except OSError:  # a broken link; the code that opens the file reports why
            is_inner = not is_file
        if recursive if is_inner else is_file:
            yield entry.path, is_inner


def _begins_as_picture(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        if entry.is_file():
            with open_regular(entry.path) as file:
                return is_picture(file.read(PICTURE_HEAD))
    return False
