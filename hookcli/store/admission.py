"""Check whether a run may be written into a folder, before anything in it is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.errors import OutputError
from hookcli.store.ownership import find_run
from hookcli.store.places.folders import find_folder
from hookcli.store.places.names import MANIFEST, REQUEST
from hookcli.store.strangers import refuse_strangers

if TYPE_CHECKING:
    from hookcli.outside.urls import Place
    from hookcli.store.ownership import HeldRun
    from hookcli.store.places.folders import Folder
    from hookcli.store.places.names import PlannedNames


def check_folder(
    place: Place, planned: PlannedNames, *, replace_run: bool, replace_any: bool
) -> HeldRun | None:
    """Return the run that is in a folder, or None, if a new run may be written there.

    Nothing is changed.

    Raises:
        OutputError: the folder is protected, in use, or not a folder, or a file that no run wrote
            has a name that the new run may write.
    """
    folder = find_folder(place)
    if folder is None:
        return None
    with folder:
        folder.refuse_locked()
        return find_replaceable_run(
            folder, planned, replace_run=replace_run, replace_any=replace_any
        )


def find_replaceable_run(
    folder: Folder, planned: PlannedNames, *, replace_run: bool, replace_any: bool
) -> HeldRun | None:
    """Return the run that is in a folder, or None, if a new run may be written there.

    Raises:
        OutputError: nothing may be written there.
    """
    name, held = repr(str(folder.path)), find_run(folder)
    if held is not None and not (replace_run or replace_any):
        raise _no_replacing(name, held)
    for mark in (MANIFEST, REQUEST):
        if (held is None or mark not in held.known) and folder.find(mark) is not None:
            raise OutputError(
                f"{name} holds a {mark} that no run wrote", "choose another folder with -o"
            )
    if held is None and not replace_any and next(folder.entries(), None) is not None:
        raise OutputError(
            f"{name} holds files that no run wrote",
            "choose another folder with -o; --overwrite writes there and deletes none of them",
        )
    refuse_strangers(folder, held, planned)
    return held


def _no_replacing(name: str, held: HeldRun) -> OutputError:
    """Return the error for a run that is in a folder and may not be replaced."""
    if held.complete is not None:
        return OutputError(
            f"{name} holds a run already", "replace it with --overwrite, or choose another -o"
        )
    return OutputError(
        f"{name} holds a run that did not finish",
        "go on with --resume, or replace it with --overwrite",
    )
