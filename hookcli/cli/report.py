"""``hookcli report``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hookcli.cli import console


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    single_file: Annotated[
        bool, typer.Option("--single-file", help="Put the pictures into the page, to mail it.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Make the page of a run again, from what is in its folder; no model and no image is touched.

    Example: hookcli report hookcli-runs/resnet34-cat --open
    """
    from hookcli.files import write_atomic
    from hookcli.sinks.report import read_document, render_report

    document = read_document(run)
    if document["missing"]:
        first, *rest = document["missing"]
        console.warn(f"pictures are missing: {first}{f' and {len(rest)} more' if rest else ''}")
    if not (run / "manifest.json").exists():
        console.warn(f"{str(run)!r} has no manifest: the run did not come to its end")
    page = render_report(document, run if single_file else None)
    file = write_atomic(run / "report.html", page.encode())
    console.print_data(f"{file}\n")
    if open_page:
        webbrowser.open(file.resolve().as_uri())
