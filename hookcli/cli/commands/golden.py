"""The command ``hookcli golden``."""

from __future__ import annotations

import signal
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookcli import errors
from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.cli.output import console
from hookcli.cli.output.run import print_notes, warn_of_damage
from hookcli.cli.request import prepare_config, run_prepared, with_progress
from hookcli.config import (
    DEFAULTS,
    BatchSize,
    FolderRequest,
    GridStyle,
    InspectConfig,
    MachineRequest,
    ObservedSide,
    RunRequest,
    StorageOptions,
    TensorRequest,
    Workers,
)
from hookcli.errors import OutputError, RequestError
from hookcli.outside.flags import Flag
from hookcli.outside.urls import choose, to_local
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.records.golden import GoldenFile

_ROOM = "set TMPDIR to a folder with free space"
# The parameters that also apply to the folder of a run.
_ALLOWED_WITH_RUN = ["model", "images", "out", "overwrite", "storage_option", "context", "quiet"]


@command
def golden(
    model: Annotated[
        str, Flag("model MODEL|RUN", "A model, as for hookcli inspect, or the folder of a run.")
    ],
    run: RunRequest,
    context: typer.Context,
    images: Annotated[
        tuple[str, ...],
        Flag("images IMAGE", "With MODEL: images, as for hookcli inspect.", many=True),
    ] = (),
    out: Annotated[
        Path | None, Flag("-o --out FILE", "The golden file.  [default: stdout]")
    ] = None,
    overwrite: Annotated[
        bool, Flag("--overwrite", "Replace the file even if it is not a golden file.")
    ] = False,
    at: ObservedSide = DEFAULTS.at,
    workers: Workers = DEFAULTS.machine.workers,
    batch_size: BatchSize = DEFAULTS.batch_size,
    storage_option: StorageOptions = (),
    quiet: options.Quiet = False,
) -> int:
    """Write a run as one small file; hookcli diff compares later runs with this file.

    Examples:
        hookcli golden hookcli-runs/resnet34-cat -o golden.json
        hookcli golden resnet34 cat.jpg --layers all -o golden.json
    """
    from hookcli.compare.golden import check_replaceable, render_golden, write_golden
    from hookcli.store.places.storage import use_options

    use_options(storage_option)
    if out is not None:
        check_replaceable(out, overwrite=overwrite)
    exit_code = errors.DONE
    if images:
        config = InspectConfig(
            with_progress(run, quiet=quiet),
            grids=GridStyle("none"),
            tensors=TensorRequest(sketch=True),
            machine=MachineRequest(workers, storage=storage_option),
            at=at,
            batch_size=batch_size,
        )
        document, exit_code = _run_model(config, quiet=quiet)
    else:
        document = _read_run(model, context)
    if out is None:
        console.print_data(render_golden(document))
    else:
        console.print_data(f"{write_golden(document, out)}\n")
    return exit_code


def _read_run(folder: str, context: typer.Context) -> GoldenFile:
    """Return the golden document of the finished run in a folder.

    Raises:
        RequestError: the folder does not exist, or the user gave an option that needs a model.
    """
    from hookcli.compare.golden import make_golden
    from hookcli.reading.load import load_run

    if not choose(folder, local=Path(to_local(folder)).is_dir(), remote=True):
        raise RequestError(
            f"there is no folder {folder!r}, and no image was given",
            "hookcli golden MODEL IMAGE..., or the folder of a run",
        )
    for name in (name for name in context.params if name not in _ALLOWED_WITH_RUN):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise RequestError(
                f"--{name.replace('_', '-')} needs a model and images, "
                f"but {folder!r} is a run's folder",
                "leave it out, or hookcli golden MODEL IMAGE...",
            )
    run = load_run(folder)
    warn_of_damage(run.damage)
    return make_golden(run)


def _run_model(config: InspectConfig, *, quiet: bool) -> tuple[GoldenFile, int]:
    """Run the model with a temporary run folder; return the golden document and the exit code.

    Raises:
        OutputError: the temporary folder cannot be created, or a file in it cannot be written.
    """
    from hookcli.compare.golden import make_golden
    from hookcli.reading.load import load_run

    with _temporary_folder() as folder:
        try:
            config = replace(config, folder=FolderRequest(folder))
            prepared = prepare_config(config, quiet=quiet, keeps=False)
            result = run_prepared(prepared, quiet=quiet, keeps=False)
        except OutputError as error:
            reason = getattr(error.__cause__, "strerror", None) or "the folder was changed"
            raise OutputError(f"cannot write temporary files: {reason}", _ROOM) from error
        document = make_golden(load_run(folder))
    chosen = {row.module_path or ROOT_LABEL for row in result.rows}
    print_notes(result, chosen, quiet=quiet)
    return document, result.exit_code


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield a temporary folder, which is deleted when the block ends, even by Ctrl-C or SIGTERM.

    Raises:
        OutputError: the folder cannot be created.
    """

    def leave(number: int, _frame: object) -> None:
        raise errors.Termination(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        try:
            made = tempfile.TemporaryDirectory(prefix="hookcli-")
        except OSError as error:
            raise OutputError(f"cannot make a temporary folder: {error.strerror}", _ROOM) from error
        with made as folder:
            yield Path(folder)
    finally:
        signal.signal(signal.SIGTERM, before)
