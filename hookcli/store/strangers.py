"""Files that no run wrote: a run folder may hold them, and no run may overwrite them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.outside.files import not_ours_error
from hookcli.store.places.entry import PARTIAL
from hookcli.store.places.names import FOLDERS, FOLDERS_BY_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.store.ownership import HeldRun
    from hookcli.store.places.entry import Entry
    from hookcli.store.places.folders import Folder
    from hookcli.store.places.names import PlannedNames


def refuse_strangers(folder: Folder, held: HeldRun | None, planned: PlannedNames) -> None:
    """Raise if a file that no run wrote has a name that the new run may write.

    Raises:
        OutputError: there is such a file, or a link in the place of a folder; the message names it.
    """
    known, begun = (held.known, held.begun) if held else (frozenset(), frozenset())
    for name, entry in _walk(folder, planned):
        if not entry.is_folder:
            whole = _without_partial(name)
            is_known = name in known if name == whole else whole in begun
            if not (is_known and entry.is_file) and planned.includes(whole):
                raise not_ours_error(folder.path / name)
        elif planned.includes(name):
            raise not_ours_error(folder.path / name)


def _without_partial(name: str) -> str:
    top, _, last = name.rpartition("/")
    last = last.removeprefix(PARTIAL)
    return f"{top}/{last}" if top else last


def _walk(folder: Folder, planned: PlannedNames) -> Iterator[tuple[str, Entry]]:
    """Yield everything in the run folder and in its subfolders that the new run would use.

    Raises:
        OutputError: a link or a file has the name of such a subfolder.
    """
    waiting = [""]
    while waiting:
        for name, entry in folder.entries(waiting.pop()):
            depth = name.count("/")
            may_hold = name in FOLDERS or (
                depth == 1 and name.partition("/")[0] in FOLDERS_BY_IMAGE
            )
            if may_hold and planned.uses(name):
                if not entry.is_folder:
                    raise not_ours_error(folder.path / name)
                waiting.append(name)
            else:
                yield name, entry
