"""``hookcli inspect``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from hookcli import errors
from hookcli.cli import console, options, reading
from hookcli.cli.outcome import count, print_result, print_summary, print_warnings
from hookcli.config import DEFAULTS, GridStyle, InspectConfig, ModelRequest

if TYPE_CHECKING:
    from hookcli.estimating import Plan
    from hookcli.results import RunResult


def inspect(
    model: options.Model,
    images: options.Images,
    layers: options.Layers = list(DEFAULTS.layers),  # noqa: B006
    exclude: options.Exclude = [],  # noqa: B006
    at: options.At = DEFAULTS.at,
    out: options.Out = DEFAULTS.out,
    weights: options.Weights = DEFAULTS.model.weights,
    seed: options.Seed = DEFAULTS.model.seed,
    device: options.Device = DEFAULTS.model.device,
    dtype: options.Dtype = DEFAULTS.model.dtype,
    size: options.Size = DEFAULTS.model.size,
    resize: options.Resize = DEFAULTS.model.resize,
    mean: options.Mean = None,
    std: options.Std = None,
    interpolation: options.Interpolation = DEFAULTS.model.interpolation,
    no_recursive: options.NoRecursive = False,
    null: options.NullSeparated = False,
    workers: options.Workers = DEFAULTS.workers,
    resume: options.Resume = False,
    verify: options.Verify = False,
    pair: options.Pair = DEFAULTS.pair,
    clip: options.Clip = DEFAULTS.clip,
    model_arg: options.ModelArg = [],  # noqa: B006
    batch_size: options.BatchSize = DEFAULTS.batch_size,
    grids: options.Grids = DEFAULTS.grids.mode,
    top: options.Top = DEFAULTS.grids.top or 0,
    channels: options.Channels = None,
    rank: options.Rank = DEFAULTS.grids.rank,
    scale: options.Scale = DEFAULTS.grids.scale,
    colormap: options.Colormap = DEFAULTS.grids.colormap,
    tile: options.Tile = DEFAULTS.grids.tile,
    focus: options.Focus = None,
    overview: options.Overview = DEFAULTS.overview,
    top_images: options.TopImages = DEFAULTS.top_images,
    save: options.Save = None,
    pool: options.Pool = "none",
    tensor_dtype: options.TensorDtype = None,
    tensor_channels: options.TensorChannels = None,
    max_disk: options.MaxDisk = DEFAULTS.max_disk,
    rule: options.Rule = [],  # noqa: B006
    fail_on: options.FailOn = "",
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
    overwrite: options.Overwrite = False,
    time: options.ShowTime = False,
    dry_run: options.DryRun = False,
) -> None:
    """Run images through a model and write feature-map grids and statistics of chosen layers.

    Example: hookcli inspect resnet34 cat.jpg --layers conv
    """
    every = channels == "all"
    chosen = None if every else reading.read_channels(channels)
    style = GridStyle(grids, None if every else top, chosen, rank, scale, colormap, tile)
    request = ModelRequest(
        name=model,
        weights=weights,
        seed=seed,
        device=device,
        dtype=dtype,
        size=size,
        resize=resize,
        mean=reading.read_numbers("--mean", mean),
        std=reading.read_numbers("--std", std),
        interpolation=interpolation,
        arguments=reading.read_model_arguments(model_arg),
        progress=not quiet and sys.stderr.isatty(),
    )
    config = InspectConfig(
        model=request,
        images=tuple(images),
        recursive=not no_recursive,
        null_separated=null,
        workers=workers,
        resume=resume,
        verify=verify,
        pair=pair,
        clip=clip,
        layers=tuple(layers),
        exclude=tuple(exclude),
        at=at,
        out=out,
        overwrite=overwrite,
        batch_size=batch_size,
        focus=reading.read_box(focus),
        overview=overview,
        grids=style,
        top_images=top_images,
        save=reading.read_save(save, pool, tensor_dtype, tensor_channels),
        max_disk=max_disk,
        rules=reading.read_rules(rule),
        fail_on=tuple(name.strip() for name in fail_on.split(",") if name.strip()),
    )
    if dry_run:
        _print_dry_run(config)
        return
    result = _run(config, quiet=quiet)
    print_result(config, result, output_format)
    print_warnings(config, result)
    print_summary(result, quiet=quiet, time=time)
    raise typer.Exit(result.exit_code)


def _print_dry_run(config: InspectConfig) -> None:
    from hookcli.planning import plan_run

    with console.no_data():
        plan = plan_run(config)
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
