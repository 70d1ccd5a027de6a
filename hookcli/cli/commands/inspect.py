"""The command ``hookcli inspect``."""

from __future__ import annotations

from hookcli.cli.option_groups import command
from hookcli.cli.options import ShowOptions
from hookcli.config import InspectConfig


@command
def inspect(config: InspectConfig, show: ShowOptions) -> int:
    """Write feature maps and statistics of chosen layers, and a page to look at.

    Examples:
        hookcli inspect resnet34 cat.jpg
        hookcli inspect resnet34 photos --layers 'layer4.*' --grids none -o my-run
        hookcli inspect vit_b_16 cat.jpg --layers attention --attention all
        hookcli inspect model.py:make photos --layers all --fail-on nan,inf
    """
    from hookcli.cli.request import print_run

    return print_run(config, show)
