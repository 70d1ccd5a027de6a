"""``hookcli inspect``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from hookcli import errors
from hookcli.cli import console, options
from hookcli.cli.listing import Listing, Look, print_listing
from hookcli.config import DEFAULTS, GridStyle, InspectConfig, ModelRequest, to_command
from hookcli.records import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookcli.aggregate import LayerRow
    from hookcli.planning import Plan
    from hookcli.results import ImageResult, Prediction, RunResult

_LOOK = Look(
    header=("#", "call", "type", "shape", "layout", "mean", "std", "min", "max", "zero", "dead"),
    words=("call", "type", "shape", "layout"),
    fold=("call",),
    drop=("layout", "type", "dead", "zero", "shape", "std", "max", "min", "mean"),
)


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
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
    overwrite: options.Overwrite = False,
    time: options.ShowTime = False,
    dry_run: options.DryRun = False,
) -> None:
    """Run images through a model and write feature-map grids and statistics of chosen layers.

    Example: hookcli inspect resnet34 cat.jpg --layers conv
    """
    style = GridStyle(
        mode=grids,
        top=None if channels == "all" else top,
        channels=None if channels == "all" else options.read_channels(channels),
        rank=rank,
        scale=scale,
        colormap=colormap,
        tile=tile,
    )
    request = ModelRequest(
        name=model,
        weights=weights,
        seed=seed,
        device=device,
        dtype=dtype,
        size=size,
        resize=resize,
        mean=options.read_numbers("--mean", mean),
        std=options.read_numbers("--std", std),
        interpolation=interpolation,
        arguments=options.read_model_arguments(model_arg),
        progress=not quiet and sys.stderr.isatty(),
    )
    config = InspectConfig(
        model=request,
        images=tuple(images),
        pair=pair,
        clip=clip,
        layers=tuple(layers),
        exclude=tuple(exclude),
        at=at,
        out=out,
        overwrite=overwrite,
        batch_size=batch_size,
        grids=style,
    )
    if dry_run:
        _print_dry_run(config)
        return
    result = _run(config, quiet=quiet)
    _print_result(config, result, output_format)
    _warn_of_missing_channels(config.grids, result)
    _print_summary(result, quiet=quiet, time=time)
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

    with console.no_data():
        prepared = prepare_run(config)
    console.say(_plan_text(config, prepared.plan), quiet=quiet)
    for skipped in prepared.skipped:
        console.warn(f"skipped {skipped.file!r}: {skipped.reason}")
    if prepared.loaded.info.warning:
        console.warn(prepared.loaded.info.warning)
    from hookcli.cli.completion import save_model_names
    from hookcli.pipeline import run

    save_model_names()
    with console.no_data():
        return run(prepared)


def _plan_text(config: InspectConfig, plan: Plan) -> str:
    return (
        f"{config.model.name}: {_count(plan.layers, 'layer')}, {_count(plan.images, 'image')}, "
        f"about {_count(plan.files, 'file')}, up to about {plan.megabytes:.1f} MB, into {plan.out_dir}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print_result(config: InspectConfig, result: RunResult, output_format: str) -> None:
    from hookcli.aggregate import LayerRow, aggregate_layers

    rows = aggregate_layers(result.records)
    listing = Listing(
        LayerRow, rows, _cells, _document(config, result, rows), tuple(_caption(result))
    )
    print_listing(listing, _LOOK, output_format)


def _caption(result: RunResult) -> Iterator[str]:
    """What stands below the table: the weights, and what the network saw."""
    trained = "" if result.model.trained else ", NOT TRAINED"
    yield f"weights: {result.model.weights}{trained}"
    for image in result.images:
        if image.predictions:
            yield _prediction_text(image, trained=result.model.trained)


def _document(
    config: InspectConfig, result: RunResult, rows: Sequence[LayerRow]
) -> dict[str, object]:
    return {
        "command": to_command(config),
        "run_folder": result.out_dir,
        "model": result.model,
        "images": result.images,
        "skipped": result.skipped,
        "uncalled": [{"layer": u.layer.label, "reason": u.reason} for u in result.uncalled],
        "findings": [],
        "layers": rows,
    }


def _cells(row: LayerRow) -> list[str]:
    figures = [_number(value) for value in (row.mean, row.std, row.min, row.max)]
    zero = "" if row.zero_fraction is None else f"{row.zero_fraction:.1%}"
    dead = "" if row.dead_channels is None else f"{row.dead_channels}/{row.channels}"
    shape = shape_text(row.shape)
    broken = [f"{row.nan_count} NaN"] * (row.nan_count > 0) + [f"{row.inf_count} Inf"] * (
        row.inf_count > 0
    )
    call = " ".join([row.call_id, *broken])
    return [str(row.order), call, row.module_type, shape, row.layout, *figures, zero, dead]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _prediction_text(image: ImageResult, *, trained: bool) -> str:
    said = ", ".join(_prediction(prediction) for prediction in image.predictions)
    note = "" if trained else " (meaningless: the weights are random)"
    return f"{image.file}: {said}{note}"


def _prediction(prediction: Prediction) -> str:
    value = "?"
    if prediction.value is not None:
        pixels = prediction.measure == "pixels"
        value = f"{prediction.value:.3g} pixels" if pixels else f"{prediction.value:.1%}"
    if prediction.box is None:
        return f"{prediction.category} {value}"
    left, top, right, bottom = (round(side) for side in prediction.box)
    return f"{prediction.category} {value} at {left},{top} to {right},{bottom}"


def _warn_of_missing_channels(style: GridStyle, result: RunResult) -> None:
    if style.mode == "none" or not style.channels:
        return
    counts = {
        r.call.id: len(r.channels.low) for r in result.records if r.channels and r.layout.is_spatial
    }
    short = [call_id for call_id, count in counts.items() if count <= max(style.channels)]
    if short:
        more = f", and {len(short) - 1} more are short of some" if len(short) > 1 else ""
        console.warn(f"--channels: {short[0]} has channels 0 to {counts[short[0]] - 1} only{more}")


def _print_summary(result: RunResult, *, quiet: bool, time: bool) -> None:
    for note in dict.fromkeys(image.note for image in result.images if image.note):
        console.say(f"the model saw {note}", quiet=quiet)
    for uncalled in result.uncalled:
        console.say(f"not called: {uncalled.layer.label}: {uncalled.reason}", quiet=quiet)
    console.say(f"wrote {_count(len(result.files), 'file')} into {result.out_dir}", quiet=quiet)
    if time:
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items())
        console.say(f"time: {stages}")
