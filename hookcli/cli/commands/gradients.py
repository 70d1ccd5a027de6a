"""``hookcli gradients``."""

from __future__ import annotations

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.config import GradientsConfig


@command
def gradients(
    model: options.Model,
    images: options.Images,
    layers: options.LayerOptions,
    backward: options.BackwardOptions,
    folder: options.FolderOptions,
    weights: options.ModelOptions,
    names: options.ImageOptions,
    grids: options.GridOptions,
    tensors: options.TensorOptions,
    findings: options.FindingOptions,
    edits: options.EditOptions,
    machine: options.MachineOptions,
    pair: options.Pair = None,
    clip: options.Clip = False,
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
    time: options.ShowTime = False,
    dry_run: options.DryRun = False,
) -> None:
    """Run images through a model and back, and write gradients of chosen layers and their weights.

    Example: hookcli gradients resnet34 cat.jpg --layers conv --target 'tabby'
    """
    from hookcli.cli.request import make_request, print_run

    config = GradientsConfig(
        make_request(
            model, images, weights, names, layers, edits, pair=pair, clip=clip, quiet=quiet
        ),
        folder.request(),
        grids.style(),
        tensors.request(),
        findings.request(),
        machine.request(),
        folder.save_weights,
        backward=backward.style(),
    )
    print_run(config, output_format, quiet=quiet, time=time, dry_run=dry_run)
