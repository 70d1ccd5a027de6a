"""The command ``hookcli gradients``."""

from __future__ import annotations

from hookcli.cli.option_groups import command
from hookcli.cli.options import ShowOptions
from hookcli.config import GradientsConfig


@command
def gradients(config: GradientsConfig, show: ShowOptions) -> int:
    """Write gradients of chosen layers and of their weights, and draw Grad-CAM and saliency.

    Examples:
        hookcli gradients resnet34 cat.jpg --target tabby
        hookcli gradients resnet34 cat.jpg --cam layer4 --saliency
        hookcli gradients model.py:make cat.jpg --layers all --fail-on nan,exploding
    """
    from hookcli.cli.request import print_run

    return print_run(config, show)
