"""Find out from manifest and journals which files belong to a run, and which are damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hookcli.errors import OutputError
from hookcli.outside.documents import DamagedError, decode_both
from hookcli.outside.files import ANOTHER, real_path
from hookcli.records.report import FileList, Request
from hookcli.store.journal import read_journals
from hookcli.store.locations import names
from hookcli.store.locations.folders import open_folder
from hookcli.store.locations.storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hookcli.outside.urls import Location
    from hookcli.store.locations.folder import Folder

R = TypeVar("R", Request, FileList)


@dataclass(frozen=True, slots=True)
class HeldRun:
    known: frozenset[str]  # the names of the run's files
    journal: frozenset[str]  # of files that a killed run may have left as ``.partial-NAME``
    complete: FileList | None  # the files in the manifest; None for an unfinished run

    @property
    def has_results(self) -> bool:
        """Whether the run is complete or has written results; without a journal, it may have."""
        if self.complete is not None or names.JOURNAL not in self.known:
            return True
        # A run whose model fails writes the layers that ran before, for the image that failed.
        rest = self.known - {names.REQUEST, names.JOURNAL, names.LAYERS}
        paths = [name.split("/") for name in rest]
        images = {path[1] for path in paths if path[0] in names.FOLDERS_BY_IMAGE}
        has_others = any(path[0] not in names.FOLDERS_BY_IMAGE | {names.SEEN} for path in paths)
        return has_others or len(images) > (names.LAYERS in self.known)


def find_run(folder: Folder) -> HeldRun | None:
    request, manifest = folder.read(names.REQUEST), folder.read(names.MANIFEST)
    listing = _decode(manifest, FileList)
    is_ours = False
    if request:
        is_ours = _decode(request, Request) is not None
    elif listing is not None:
        is_ours = request is None and folder.find(names.REQUEST) is None
    elif request is None and _has_begun(folder):
        return HeldRun(frozenset({names.REQUEST}), names.UNJOURNALED | {names.REQUEST}, None)
    if not is_ours:
        return None
    journal = frozenset(filter(names.is_run_file, read_journals(folder)))
    listed = () if listing is None else (names.MANIFEST, *filter(names.is_run_file, listing.files))
    return HeldRun(journal.union({names.REQUEST}, listed), journal | names.UNJOURNALED, listing)


def _has_begun(folder: Folder) -> bool:
    """Return whether a run was killed while it wrote its first file, ``run.json``."""
    begun = folder.list_partial([names.REQUEST])
    is_locked = bool(begun) and folder.is_file(names.LOCK)
    return is_locked and begun == {name for name, _ in folder.entries()}


def is_run(location: Location) -> bool:
    try:
        return find_run(open_folder(location)) is not None
    except OSError:
        return False
    except OutputError as error:
        if isinstance(error.__cause__, StorageError):
            raise
        return False


def refuse_in_run(file: Path, out: Location | None = None) -> None:
    """Raise an OutputError if ``file`` has the name of a run's file and is in a run folder."""
    # ``out`` counts as a run folder, even if no run has written there yet.
    full = real_path(file)
    for folder in full.parents[:3]:
        is_runs = names.is_run_file(full.relative_to(folder).as_posix())
        if is_runs and (is_run(folder) or (isinstance(out, Path) and folder == real_path(out))):
            what = f"{str(file)!r} is a file of the run in {str(folder)!r}"
            raise OutputError(what, "name a file outside run folders")


def refuse_run_folder(folder: Path, hint: str = ANOTHER) -> None:
    full = real_path(folder)
    for each in (full, *full.parents):
        if is_run(each):
            raise OutputError(f"{str(folder if each == full else each)!r} is a run's folder", hint)


def list_damage(sizes: Mapping[str, int], measure: Callable[[str], int | None]) -> dict[str, str]:
    # ``measure`` returns the present size of a file in bytes, or None if the file is missing.
    found = {}
    for name, size in sizes.items():
        there = measure(name) if names.is_run_file(name) else None
        if there is None:
            found[name] = f"{name} is missing"
        elif there != size:
            found[name] = f"{name} has {there:,} bytes, and the run wrote {size:,}"
    return found


def _decode(data: bytes | None, kind: type[R]) -> R | None:
    try:
        return None if data is None else decode_both(data, kind)[1]
    except DamagedError:
        return None
