"""What ``hookcli inspect`` and ``hookcli gradients`` share: from their options to what they print."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from hookcli import errors
from hookcli.cli import memory, parse
from hookcli.cli.output import console
from hookcli.cli.output.run import count, print_result, print_summary, print_warnings
from hookcli.config import BackwardStyle, GridStyle, InspectConfig, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.plan.estimate import Plan
    from hookcli.records.images import SkippedImage
    from hookcli.records.runs import ModelInfo, RunResult

_MODEL = ("weights", "seed", "device", "dtype", "size", "resize", "interpolation")
_BACKWARD = ("target", "score", "input_grad", "times_activation", "saliency")


def run_command(words: dict[str, Any]) -> None:
    """Do what the options ask for, by their names in the command's signature, and print what came of it."""
    config = read_config(words)
    quiet: bool = words["quiet"]
    if words["dry_run"]:
        _print_dry_run(config)
        return
    result = run_config(config, quiet=quiet)
    print_result(config, result, words["output_format"])
    print_warnings(config, result)
    print_summary(result, quiet=quiet, time=words["time"])
    if config.save_weights is not None:
        console.say(f"wrote {config.save_weights}", quiet=quiet)
    raise typer.Exit(result.exit_code)


def read_config(words: dict[str, Any]) -> InspectConfig:
    """What the options ask for, by their names in the signature of ``inspect`` or ``gradients``.

    Raises:
        RequestError: one of them cannot be read.
    """
    given = dict(words)
    backward = None
    if "target" in given:
        chosen = {name: given.pop(name) for name in _BACKWARD if name in given}
        backward = BackwardStyle(**chosen, cams=tuple(given.pop("cam", ())))
    for name in ("dry_run", "time", "output_format"):
        given.pop(name)
    quiet = given.pop("quiet")
    model = ModelRequest(
        name=given.pop("model"),
        mean=parse.read_numbers("--mean", given.pop("mean")),
        std=parse.read_numbers("--std", given.pop("std")),
        arguments=parse.read_model_arguments(given.pop("model_arg")),
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
        focus=parse.read_box(given.pop("focus", None)),
        grids=_read_style(given),
        save=parse.read_save(
            *(given.pop(n) for n in ("save", "pool", "tensor_dtype", "tensor_channels"))
        ),
        rules=parse.read_rules(given.pop("rule")),
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
        None if every else parse.read_channels(channels),
        **{name: given.pop(name) for name in ("rank", "scale", "colormap", "tile")},
    )


def _print_dry_run(config: InspectConfig) -> None:
    from hookcli.plan.prepare import plan_run

    try:
        with console.no_data():
            plan = plan_run(config)
    except errors.CompleteError as error:
        console.say(error.message)
        raise typer.Exit(errors.DONE) from error
    console.say(_plan_text(config, plan))
    warn_of_skipped(plan.skipped)
    if plan.skipped:
        raise typer.Exit(errors.SKIPPED)


def run_config(config: InspectConfig, *, quiet: bool, keeps: bool = True) -> RunResult:
    """Do what was asked, and say on stderr what is going to be done and how it goes.

    ``keeps``: what is written stays, so it is said where and how much.
    """
    from hookcli.plan.prepare import prepare_run

    try:
        with console.no_data():
            prepared = prepare_run(config)
    except errors.CompleteError as error:
        console.say(error.message, quiet=quiet)
        raise typer.Exit(errors.DONE) from error
    console.say(_plan_text(config, prepared.plan, keeps=keeps), quiet=quiet)
    warn_of_skipped(prepared.skipped)
    warn_of_models(prepared.loaded.info)
    memory.collect_as_usual()
    from hookcli.cli.completion import save_model_names
    from hookcli.cli.output.progress import Progress
    from hookcli.run.pipeline import run

    save_model_names()
    bar = Progress(len(prepared.sources), is_shown=prepared.is_long and not quiet)
    try:
        with console.no_data(), bar as progress:
            result = run(prepared, progress)
    except (errors.ForwardError, errors.NoBoxError) as error:
        if keeps and len(prepared.sources) > 1:
            error.hint += ", and --resume goes on with the run"
        raise
    warn_of_skipped(result.skipped[len(prepared.skipped) :])
    return result


def warn_of_models(*models: ModelInfo) -> None:
    """Say what must be known about the weights, and what was done to a model unasked; each once."""
    texts = (text for model in models for text in (model.warning, *model.notes))
    for text in dict.fromkeys(filter(None, texts)):
        console.warn(text)


def warn_of_skipped(skipped: Sequence[SkippedImage]) -> None:
    """Name the images that could not be used."""
    for image in skipped:
        console.warn(f"skipped {image.file!r}: {image.reason}")


_PICTURES = {"layers": "a grid a layer", "sheet": "a sheet an image", "none": "no grids"}


def _plan_text(config: InspectConfig, plan: Plan, *, keeps: bool = True) -> str:
    what = f"{config.model.name}: {count(plan.layers, 'layer')}, {count(plan.images, 'image')}"
    if not keeps:
        return what
    pictures = (
        _PICTURES[plan.grids] + ", sketches" * plan.sketches + ", tensors" * bool(config.save)
    )
    return (
        f"{what}, {pictures}, "
        f"about {count(plan.files, 'file')}, up to about {plan.megabytes:.1f} MB, into {plan.out_dir}"
    )
