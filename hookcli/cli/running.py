"""What ``hookcli inspect`` and ``hookcli gradients`` share: from their options to what they print."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from hookcli import errors
from hookcli.cli import console, reading
from hookcli.cli.outcome import count, print_result, print_summary, print_warnings
from hookcli.config import BackwardStyle, GridStyle, InspectConfig, ModelRequest

if TYPE_CHECKING:
    from hookcli.estimating import Plan
    from hookcli.results import RunResult

_MODEL = ("weights", "seed", "device", "dtype", "size", "resize", "interpolation")
_BACKWARD = ("target", "score", "input_grad", "times_activation", "saliency")


def run_words(words: dict[str, Any]) -> None:
    """Do what the options ask for, by their names in the command's signature, and print what came of it."""
    config = _read_config(words)
    quiet: bool = words["quiet"]
    if words["dry_run"]:
        _print_dry_run(config)
        return
    result = _run(config, quiet=quiet)
    print_result(config, result, words["output_format"])
    print_warnings(config, result)
    print_summary(result, quiet=quiet, time=words["time"])
    raise typer.Exit(result.exit_code)


def _read_config(words: dict[str, Any]) -> InspectConfig:
    given = dict(words)
    backward = None
    if "target" in given:
        chosen = {name: given.pop(name) for name in _BACKWARD}
        backward = BackwardStyle(**chosen, cams=tuple(given.pop("cam")))
    for name in ("dry_run", "time", "output_format"):
        given.pop(name)
    quiet = given.pop("quiet")
    model = ModelRequest(
        name=given.pop("model"),
        mean=reading.read_numbers("--mean", given.pop("mean")),
        std=reading.read_numbers("--std", given.pop("std")),
        arguments=reading.read_model_arguments(given.pop("model_arg")),
        progress=not quiet and sys.stderr.isatty(),
        **{name: given.pop(name) for name in _MODEL},
    )
    return InspectConfig(
        model=model,
        images=tuple(given.pop("images")),
        layers=tuple(given.pop("layers")),
        exclude=tuple(given.pop("exclude")),
        recursive=not given.pop("no_recursive"),
        null_separated=given.pop("null"),
        focus=reading.read_box(given.pop("focus", None)),
        grids=_read_style(given),
        save=reading.read_save(
            *(given.pop(n) for n in ("save", "pool", "tensor_dtype", "tensor_channels"))
        ),
        rules=reading.read_rules(given.pop("rule")),
        fail_on=tuple(name.strip() for name in given.pop("fail_on").split(",") if name.strip()),
        edits=tuple(given.pop("edit")),
        prunes=tuple(given.pop("prune")),
        backward=backward,
        **given,
    )


def _read_style(given: dict[str, Any]) -> GridStyle:
    channels, top = given.pop("channels"), given.pop("top")
    every = channels == "all"
    return GridStyle(
        given.pop("grids"),
        None if every else top,
        None if every else reading.read_channels(channels),
        **{name: given.pop(name) for name in ("rank", "scale", "colormap", "tile")},
    )


def _print_dry_run(config: InspectConfig) -> None:
    from hookcli.planning import plan_run

    try:
        with console.no_data():
            plan = plan_run(config)
    except errors.CompleteError as error:
        console.say(error.message)
        raise typer.Exit(errors.DONE) from error
    console.say(_plan_text(config, plan))
    for skipped in plan.skipped:
        console.warn(f"skipped {skipped.file!r}: {skipped.reason}")
    if plan.skipped:
        raise typer.Exit(errors.SKIPPED)


def _run(config: InspectConfig, *, quiet: bool) -> RunResult:
    from hookcli.planning import prepare_run

    try:
        with console.no_data():
            prepared = prepare_run(config)
    except errors.CompleteError as error:
        console.say(error.message, quiet=quiet)
        raise typer.Exit(errors.DONE) from error
    console.say(_plan_text(config, prepared.plan), quiet=quiet)
    for skipped in prepared.skipped:
        console.warn(f"skipped {skipped.file!r}: {skipped.reason}")
    if prepared.loaded.info.warning:
        console.warn(prepared.loaded.info.warning)
    from hookcli.cli.completion import save_model_names
    from hookcli.cli.progress import Progress
    from hookcli.pipeline import run

    save_model_names()
    with console.no_data(), Progress(prepared, quiet=quiet) as progress:
        result = run(prepared, progress)
    for skipped in result.skipped[len(prepared.skipped) :]:
        console.warn(f"skipped {skipped.file!r}: {skipped.reason}")
    return result


_PICTURES = {"layers": "a grid a layer", "sheet": "a sheet an image", "none": "no grids"}


def _plan_text(config: InspectConfig, plan: Plan) -> str:
    pictures = _PICTURES[plan.grids] + (", tensors" if config.save else "")
    return (
        f"{config.model.name}: {count(plan.layers, 'layer')}, {count(plan.images, 'image')}, {pictures}, "
        f"about {count(plan.files, 'file')}, up to about {plan.megabytes:.1f} MB, into {plan.out_dir}"
    )
