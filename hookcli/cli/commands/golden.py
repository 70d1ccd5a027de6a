"""``hookcli golden``."""

from __future__ import annotations

import signal
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookcli import errors
from hookcli.cli import options
from hookcli.cli.commands.inspect import inspect
from hookcli.cli.output import console
from hookcli.cli.output.run import print_notes, warn_of_damage
from hookcli.cli.request import read_config, run_config
from hookcli.errors import OutputError, RequestError
from hookcli.records.calls import ROOT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookcli.config import InspectConfig

ModelOrRun = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|RUN",
        help="A model, as hookcli inspect takes it, or the folder of a run with sketches.",
        autocompletion=options.complete_model,
    ),
]
MaybeImages = Annotated[
    list[str], typer.Argument(metavar="IMAGE", help="With MODEL: as hookcli inspect takes it.")
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="FILE", help="The golden file.  [default: stdout]"),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file that is not a golden file.")
]
_ROOM = "set TMPDIR to a folder where there is room"
_OWN = {
    "model": (ModelOrRun, ...),
    "images": (MaybeImages, []),
    "out": (Out, None),
    "overwrite": (Overwrite, False),
    "context": (typer.Context, None),
}
_SHARED = (
    "layers", "exclude", "at", "edit", "prune", "weights", "seed", "device", "dtype", "size", "resize",
    "mean", "std", "interpolation", "no_recursive", "null", "on_error", "workers", "pair", "clip", "model_arg",
    "batch_size", "quiet",
)  # fmt: skip
_OF_MODEL = tuple(name for name in signature(inspect).parameters if name in {*_SHARED} - {"quiet"})
_UNSHARED = {
    name: parameter.default
    for name, parameter in signature(inspect).parameters.items()
    if name not in _SHARED
}


def golden(**words: Any) -> None:
    """Write what a run gave as one small file, that hookcli diff holds later runs against.

    Example: hookcli golden resnet34 cat.jpg --layers conv -o golden.json
    """
    from hookcli.compare.golden import check_replaceable, render_golden, write_golden

    context: typer.Context = words.pop("context")
    out: Path | None = words["out"]
    if out is not None:
        check_replaceable(out, overwrite=words["overwrite"])
    exit_code = errors.DONE
    if words["images"]:
        document, exit_code = _run_model(_read_words(words), quiet=words["quiet"])
    else:
        document = _read_run(words["model"], context)
    if out is None:
        console.print_data(render_golden(document))
    else:
        console.print_data(f"{write_golden(document, out)}\n")
    raise typer.Exit(exit_code)


options.share_options(golden, inspect, _OWN, _UNSHARED.keys() - _OWN.keys())


def _read_run(folder: str, context: typer.Context) -> dict[str, Any]:
    """The document of a run that is done already; nothing can be asked of it."""
    from hookcli.compare.golden import make_golden
    from hookcli.store.load import load_run

    if not Path(folder).is_dir():
        raise RequestError(
            f"there is no folder {folder!r}, and no image is named",
            "hookcli golden MODEL IMAGE..., or the folder of a run",
        )
    for name in _OF_MODEL:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise RequestError(
                f"--{name.replace('_', '-')} is for a model and images, and {folder!r} is a run's folder",
                "leave it out, or hookcli golden MODEL IMAGE...",
            )
    run = load_run(folder)
    warn_of_damage(run.damage)
    return make_golden(run)


def _read_words(words: dict[str, Any]) -> InspectConfig:
    asked = words | {name: value for name, value in _UNSHARED.items() if name not in words}
    config = read_config(asked | {"out": None, "overwrite": False})
    return replace(config, sketch=True, grids=replace(config.grids, mode="none"))


def _run_model(config: InspectConfig, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """The document of a run into a folder that goes again, and the exit code of the run."""
    from hookcli.compare.golden import make_golden
    from hookcli.store.load import load_run

    with _passing_folder() as folder:
        try:
            result = run_config(replace(config, out=folder), quiet=quiet, keeps=False)
        except OutputError as error:
            reason = getattr(error.__cause__, "strerror", None) or "the folder was changed"
            raise OutputError(
                f"cannot write files that are needed on the way: {reason}",
                _ROOM,
            ) from error
        document = make_golden(load_run(folder))
    chosen = {row.module_path or ROOT_LABEL for row in result.rows}
    print_notes(result.images, result.uncalled, quiet=quiet, chosen=chosen)
    return document, result.exit_code


@contextmanager
def _passing_folder() -> Iterator[Path]:
    """A new folder that is gone when the block ends, also by Ctrl-C and SIGTERM."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

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
