"""Which files on disk belong to a run: hookcli changes and deletes no others.

A folder is that of a run if its ``run.json`` was written by hookcli or, without a ``run.json``, its
``manifest.json`` was. The files of a run are those that its manifest lists and, while it lives or
after it was killed, those that its journals list (``parts/written.jsonl``, and one more for each
chunk that another process writes), to which every name is added before the file is written.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hookcli.documents import DamagedError, FileList, Request, decode_both
from hookcli.errors import OutputError
from hookcli.store.directory import PARTIAL, Directory
from hookcli.store.journal import read_journals
from hookcli.store.names import (
    FOLDERS,
    FOLDERS_BY_IMAGE,
    MANIFEST,
    REQUEST,
    UNJOURNALED,
    is_run_file,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from hookcli.store.names import PlannedNames

R = TypeVar("R", Request, FileList)


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run that is in a folder.

    Attributes:
        known: the files that the run is known to have written.
        begun: files that may be left half written, under their ``.partial-`` names, by a run that
            was killed.
        complete: the content of the manifest; None for an unfinished run.
    """

    known: frozenset[str]
    begun: frozenset[str]
    complete: FileList | None


def find_run(folder: Directory) -> HeldRun | None:
    """Return the run that is in a folder; None if there is none, whatever else is there.

    Raises:
        OutputError: the folder may not be read.
    """
    request, manifest = folder.read(REQUEST), folder.read(MANIFEST)
    listing = _decode(manifest, FileList)
    if request is None:
        is_ours = listing is not None and folder.status(REQUEST) is None
    elif request:
        is_ours = _decode(request, Request) is not None
    else:  # the run was killed before it could write its request
        is_ours = [name for name, _ in folder.entries()] == [REQUEST]
    if not is_ours:
        return None
    begun = frozenset(filter(is_run_file, read_journals(folder)))
    listed = () if listing is None else (MANIFEST, *filter(is_run_file, listing.files))
    return HeldRun(begun.union({REQUEST}, listed), begun | UNJOURNALED, listing)


def is_run(path: Path) -> bool:
    """Return whether a folder is that of a run."""
    try:
        with Directory(path) as folder:
            return find_run(folder) is not None
    except (OSError, OutputError):
        return False


def find_holder(file: Path, out: Path | None = None) -> Path | None:
    """Return the run folder in which a file has the name of one of the run's files, or None.

    Args:
        file: the file, by any name.
        out: a folder that is going to be that of a run.
    """
    full = file.resolve()
    for folder in full.parents[:3]:
        is_runs = is_run_file(str(full.relative_to(folder)))
        if is_runs and (is_run(folder) or (out and folder == out.resolve())):
            return folder
    return None


def refuse_strangers(folder: Directory, held: HeldRun | None, planned: PlannedNames) -> None:
    """Raise if a file that no run wrote has a name that the new run may write.

    Raises:
        OutputError: there is such a file, or a link in the place of a folder; the message names it.
    """
    known, begun = (held.known, held.begun) if held else (frozenset(), frozenset())
    for name, status in _walk(folder, planned):
        if not stat.S_ISDIR(status.st_mode):
            whole = _without_partial(name)
            is_known = name in known if name == whole else whole in begun
            if not (is_known and stat.S_ISREG(status.st_mode)) and planned.includes(whole):
                raise not_ours_error(folder, name)
        elif planned.includes(name):
            raise not_ours_error(folder, name)


def not_ours_error(folder: Directory, name: str) -> OutputError:
    """Return the error for an existing file that no run is known to have written."""
    return OutputError(
        f"{str(folder.path / name)!r} was not written by a run, and this run would overwrite it",
        "choose another folder with -o",
    )


def remove_known(folder: Directory, names: AbstractSet[str]) -> None:
    """Delete the given files, and the folders that are empty after that.

    Raises:
        OutputError: a file cannot be deleted.
    """
    emptied = set()
    for name in sorted(names):
        top = name.rpartition("/")[0]
        if folder.remove(name) and top:
            emptied |= {top, top.partition("/")[0]}
    for each in sorted(emptied, key=len, reverse=True):
        folder.remove_if_empty(each)


def remove_half_written(folder: Directory, names: AbstractSet[str]) -> None:
    """Delete the half-written versions of the given files, which a killed run left behind.

    Raises:
        OutputError: a file cannot be deleted.
    """
    tops = {name: name.rpartition("/") for name in names}
    partials = {name: f"{top}{slash}{PARTIAL}{last}" for name, (top, slash, last) in tops.items()}
    remove_known(folder, set(partials.values()))


def list_damage(path: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """Return the files of a complete run that are missing or have a different size, with sentences.

    Links are followed.

    Args:
        path: the run folder.
        sizes: the sizes in the manifest; empty for runs of earlier versions.
    """
    found = {}
    for name, size in sizes.items():
        try:
            status = (path / name).stat() if is_run_file(name) else None
        except OSError:
            status = None
        if status is None or not stat.S_ISREG(status.st_mode):
            found[name] = f"{name} is missing"
        elif status.st_size != size:
            found[name] = f"{name} has {status.st_size:,} bytes, and the run wrote {size:,}"
    return found


def _decode(data: bytes | None, kind: type[R]) -> R | None:
    if data is None:
        return None
    try:
        return decode_both(data, kind)[1]
    except DamagedError:
        return None


def _without_partial(name: str) -> str:
    top, _, last = name.rpartition("/")
    last = last.removeprefix(PARTIAL)
    return f"{top}/{last}" if top else last


def _walk(folder: Directory, planned: PlannedNames) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything in the run folder and in its subfolders that the new run would use.

    Raises:
        OutputError: a link or a file has the name of such a subfolder.
    """
    waiting = [""]
    while waiting:
        for name, status in folder.entries(waiting.pop()):
            depth = name.count("/")
            may_hold = name in FOLDERS or (
                depth == 1 and name.partition("/")[0] in FOLDERS_BY_IMAGE
            )
            if may_hold and planned.uses(name):
                if not stat.S_ISDIR(status.st_mode):
                    raise not_ours_error(folder, name)
                waiting.append(name)
            else:
                yield name, status
