"""``hookcli inspect``."""

from __future__ import annotations

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.config import DEFAULTS, InspectConfig


@command
def inspect(
    model: options.Model,
    images: options.Images,
    layers: options.LayerOptions,
    folder: options.FolderOptions,
    weights: options.ModelOptions,
    grids: options.GridOptions,
    pictures: options.PictureOptions,
    names: options.ImageOptions,
    attention: options.AttentionOptions,
    tensors: options.TensorOptions,
    findings: options.FindingOptions,
    edits: options.EditOptions,
    machine: options.MachineOptions,
    at: options.At = DEFAULTS.at,
    save_weights: options.SaveWeights = DEFAULTS.save_weights,
    pair: options.Pair = None,
    clip: options.Clip = False,
    batch_size: options.BatchSize = DEFAULTS.batch_size,
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
    time: options.ShowTime = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write feature maps and statistics of chosen layers, and a page to look at.

    Examples:
        hookcli inspect resnet34 cat.jpg
        hookcli inspect resnet34 photos --layers 'layer4.*' --grids none -o my-run
        hookcli inspect vit_b_16 cat.jpg --layers attention --attention all
        hookcli inspect model.py:make photos --layers all --fail-on nan,inf
    """
    from hookcli.cli import parse
    from hookcli.cli.request import make_request, print_run

    config = InspectConfig(
        make_request(
            model, images, weights, names, layers, edits, pair=pair, clip=clip, quiet=quiet
        ),
        folder.request(),
        grids.style(),
        tensors.request(has_attention=True),
        findings.request(),
        machine.request(),
        save_weights,
        at=at,
        batch_size=batch_size,
        focus=parse.read_box(pictures.focus),
        attention=attention.request(save="attention" in parse.read_saved(tensors.save)),
        overview=pictures.overview,
        top_images=pictures.top_images,
    )
    print_run(config, output_format, quiet=quiet, time=time, dry_run=dry_run)
