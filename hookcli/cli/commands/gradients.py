"""``hookcli gradients``."""

from __future__ import annotations

from hookcli.cli import options
from hookcli.cli.option_groups import command
from hookcli.config import DEFAULTS, GradientsConfig


@command
def gradients(
    model: options.Model,
    images: options.Images,
    layers: options.LayerOptions,
    backward: options.BackwardOptions,
    folder: options.FolderOptions,
    weights: options.ModelOptions,
    grids: options.GridOptions,
    names: options.ImageOptions,
    tensors: options.TensorOptions,
    findings: options.FindingOptions,
    edits: options.EditOptions,
    machine: options.MachineOptions,
    save_weights: options.SaveWeights = DEFAULTS.save_weights,
    pair: options.Pair = None,
    clip: options.Clip = False,
    output_format: options.Format = "table",
    quiet: options.Quiet = False,
    time: options.ShowTime = False,
    dry_run: options.DryRun = False,
) -> None:
    """Write gradients of chosen layers and their weights, Grad-CAM and saliency.

    Examples:
        hookcli gradients resnet34 cat.jpg --target tabby
        hookcli gradients resnet34 cat.jpg --cam layer4 --saliency
        hookcli gradients model.py:make cat.jpg --layers all --fail-on nan,exploding
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
        save_weights,
        backward=backward.style(),
    )
    print_run(config, output_format, quiet=quiet, time=time, dry_run=dry_run)
