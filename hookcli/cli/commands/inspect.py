"""``hookcli inspect``."""

from __future__ import annotations

from hookcli.cli import options
from hookcli.config import DEFAULTS


def inspect(
    model: options.Model,
    images: options.Images,
    layers: options.Layers = list(DEFAULTS.layers),  # noqa: B006
    exclude: options.Exclude = [],  # noqa: B006
    at: options.At = DEFAULTS.at,
    edit: options.Edit = [],  # noqa: B006
    prune: options.PruneOption = [],  # noqa: B006
    save_weights: options.SaveWeights = DEFAULTS.save_weights,
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
    on_error: options.OnError = DEFAULTS.on_error,
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
    sketch: options.Sketch = DEFAULTS.sketch,
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
    words = dict(locals())  # before anything else has a name here
    from hookcli.cli.request import run_command

    run_command(words)
