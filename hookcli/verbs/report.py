"""Define ``hookcli report``, which makes the page of a run again: its options and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hookcli.config import StorageOptions
from hookcli.outside.flags import Flag
from hookcli.outside.urls import HELD, shown, to_location
from hookcli.records.rows import FileRow
from hookcli.records.text import and_more
from hookcli.store.locations.names import PAGE
from hookcli.verbs.call import VerbCall
from hookcli.verbs.documents import PageDocument
from hookcli.verbs.keywords import FILES, verb
from hookcli.verbs.messages import show_page, warn_of_damage
from hookcli.verbs.outcome import FileOutcome, Page
from hookcli.verbs.runs import RunFolder

if TYPE_CHECKING:
    from hookcli.records.report import FolderState


@dataclass(frozen=True, kw_only=True)
class Report(FileOutcome):
    """The page of a run, made again from the files of the run folder."""

    state: FolderState  # how the folder differs from the files that the run wrote

    @property
    def page(self) -> Page:
        """The page; for a run in cloud storage, it has pictures only with ``single_file``."""
        file = self.files[PAGE]
        folder = None if isinstance(file, bytes) else file.parent
        pictures = {name: folder / name for name in self.state.pictures} if folder else {}
        return Page({**pictures, **self.files}, PAGE)

    def document(self) -> PageDocument:
        complete, missing = self.state.complete, self.state.missing
        return PageDocument(files=self.rows, complete=complete, missing=missing)

    def _repr_html_(self) -> str:
        return self.page._repr_html_()


@verb(*FILES)
def report(
    call: VerbCall,
    run: RunFolder,
    single_file: Annotated[
        bool, Flag("--single-file", "Embed the pictures in the page, so that you can send it.")
    ] = False,
    open_page: Annotated[bool, Flag("--open", "Show the page in the browser.")] = False,
    storage_option: StorageOptions = (),
) -> Report:
    """Make the page of a run again; needs neither the model nor the images.

    Examples:
        hookcli report hookcli-runs/resnet34-cat --open
        hookcli report hookcli-runs/resnet34-cat --single-file
    """
    from hookcli.reading.report import remake_report
    from hookcli.store.finished import replace_page
    from hookcli.store.locations.storage import use_options

    use_options(storage_option)
    location = to_location(run)
    page, state = remake_report(location, single_file=single_file or str(location).startswith(HELD))
    if state.missing:
        first, *rest = state.missing
        call.warn(f"pictures are missing: {first}{and_more(len(rest))}")
    warn_of_damage(call, state.damage)
    if not state.complete:
        call.warn(f"{run!r} has no complete manifest: the run is unfinished")
    data = page.encode()
    file = replace_page(location, data)
    if open_page:
        show_page(call, file)
    held = file if isinstance(file, Path) else data  # a URL
    return Report(
        notes=call.notes, rows=(FileRow(shown(str(file))),), files={file.name: held}, state=state
    )
