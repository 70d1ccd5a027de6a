"""Refuse to start a run in a folder that holds another run, or files that no run wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.outside.files import ANOTHER, not_ours_error
from hookcli.store.locations.folders import find_folder
from hookcli.store.locations.names import FOLDERS, FOLDERS_BY_IMAGE, MANIFEST, PARTIAL, REQUEST
from hookcli.store.ownership import find_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.outside.urls import Location
    from hookcli.store.locations.folder import Entry, Folder
    from hookcli.store.locations.names import PlannedNames
    from hookcli.store.ownership import HeldRun


def check_folder(location: Location, planned: PlannedNames) -> None:
    folder = find_folder(location)
    if folder is not None:
        folder.refuse_locked()
        find_replaceable_run(folder, planned)


def find_replaceable_run(folder: Folder, planned: PlannedNames) -> HeldRun | None:
    name, held = repr(str(folder.path)), find_run(folder)
    may_replace = planned.replace_run or planned.replace_any
    if held is not None and held.has_results and not may_replace:
        if held.complete is not None:
            what = f"{name} already holds a run"
            raise OutputError(what, "replace it with `overwrite=True`, or choose another `out`")
        hint = "continue it with `resume=True`, or replace it with `overwrite=True`"
        raise OutputError(f"{name} holds a run that did not finish", hint)
    for mark in (MANIFEST, REQUEST):
        if (held is None or mark not in held.known) and folder.find(mark) is not None:
            raise OutputError(f"{name} holds a {mark} that no run wrote", ANOTHER)
    if held is None and not planned.replace_any and next(folder.entries(), None) is not None:
        hint = f"{ANOTHER}; `overwrite=True` writes there and deletes none of them"
        raise OutputError(f"{name} holds files that no run wrote", hint)
    _refuse_strangers(folder, held, planned)
    return held


def _refuse_strangers(folder: Folder, held: HeldRun | None, planned: PlannedNames) -> None:
    known, journal = (held.known, held.journal) if held else (frozenset(), frozenset())
    for name, entry in _walk(folder, planned):
        top, slash, last = name.rpartition("/")
        whole = name if entry.is_folder else top + slash + last.removeprefix(PARTIAL)
        is_known = name in known if name == whole else whole in journal
        if not (is_known and entry.is_file) and planned.includes(whole):
            raise not_ours_error(folder.path / name)


def _walk(folder: Folder, planned: PlannedNames) -> Iterator[tuple[str, Entry]]:
    waiting = [""]
    while waiting:
        for name, entry in folder.entries(waiting.pop()):
            top, slash, key = name.partition("/")
            may_hold = top in FOLDERS_BY_IMAGE and "/" not in key if slash else name in FOLDERS
            if may_hold and planned.uses(name):
                if not entry.is_folder:
                    raise not_ours_error(folder.path / name)
                waiting.append(name)
            else:
                yield name, entry
