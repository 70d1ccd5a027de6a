"""The command ``hookcli report``."""

from __future__ import annotations

import webbrowser
from typing import Annotated

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.cli.output.run import warn_of_damage
from hookcli.cli.output.table import print_files
from hookcli.config import StorageOptions
from hookcli.outside.flags import Flag
from hookcli.outside.urls import to_place
from hookcli.records.rows import FileRow
from hookcli.records.text import and_more
from hookcli.verbs.documents import PageDocument


@command
def report(
    run: options.RunFolder,
    single_file: Annotated[
        bool, Flag("--single-file", "Embed the pictures in the page, so that you can send it.")
    ] = False,
    open_page: Annotated[bool, Flag("--open", "Show the page in the browser.")] = False,
    storage_option: StorageOptions = (),
    output_format: options.FileFormat = "text",
) -> None:
    """Make the page of a run again; needs neither the model nor the images.

    Examples:
        hookcli report hookcli-runs/resnet34-cat --open
        hookcli report hookcli-runs/resnet34-cat --single-file
    """
    from hookcli.reading.report import remake_report
    from hookcli.store.finished import replace_page
    from hookcli.store.places.storage import use_options

    use_options(storage_option)
    place = to_place(run)
    page, state = remake_report(place, single_file=single_file)
    if state.missing:
        first, *rest = state.missing
        console.warn(f"pictures are missing: {first}{and_more(len(rest))}")
    warn_of_damage(state.damage)
    if not state.complete:
        console.warn(f"{run!r} has no complete manifest: the run is unfinished")
    file = replace_page(place, page.encode())
    print_files(
        [FileRow(str(file))],
        output_format,
        lambda files: PageDocument(files=files, complete=state.complete, missing=state.missing),
    )
    if open_page:
        webbrowser.open(file.resolve().as_uri())
