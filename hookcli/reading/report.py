"""Make a run's page again from ``report.json``, and find missing and damaged files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.outside.documents import DamagedError, decode
from hookcli.reading.run_files import open_files, read_json, require_file
from hookcli.records.report import FileList, FolderState, ReportDocument
from hookcli.render.report.page import render_report
from hookcli.store.locations.names import DOCUMENT, MANIFEST, PAGE
from hookcli.store.ownership import list_damage

if TYPE_CHECKING:
    from hookcli.outside.urls import Location
    from hookcli.reading.run_files import RunFiles


def remake_report(run: Location, *, single_file: bool = False) -> tuple[str, FolderState]:
    """Make a run's page again; return its HTML, and the missing and damaged files."""
    files = open_files(run)
    document, state = read_report(files)
    return render_report(document, state, files.read if single_file else None), state


def read_report(run: RunFiles) -> tuple[ReportDocument, FolderState]:
    require_file(run, DOCUMENT)
    _, report = read_json(run, DOCUMENT, ReportDocument)
    files = [grid.file for grid in report.grids] + [heat.file for heat in report.heats]
    files += [grid.maps.file for grid in report.grids if grid.maps is not None]
    files += [maps.file for maps in report.attention_maps]
    files += [thumbnails.file for thumbnails in report.thumbnails]
    files += [image.seen for image in report.images if image.seen]
    names = dict.fromkeys(files)
    missing = [file for file in names if run.measure(file) is None]
    try:
        listed = decode(run.read(MANIFEST), FileList)
    except (OSError, DamagedError):
        listed = None
    damage = {} if listed is None else list_damage(listed.sizes, run.measure)
    others = [damage[name] for name in damage if name not in (PAGE, *missing)]
    kept = tuple(file for file in names if file not in missing)
    return report, FolderState(tuple(missing), tuple(others), listed is not None, kept)
