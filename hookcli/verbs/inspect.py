"""The verb ``inspect``."""

from __future__ import annotations

from hookcli.config import InspectConfig
from hookcli.verbs.call import Call
from hookcli.verbs.inspection import DryRun, Inspection, Planned, Time, inspect_run
from hookcli.verbs.keywords import verb
from hookcli.verbs.outcome import TABLES


@verb(*TABLES)
def inspect(
    call: Call, config: InspectConfig, time: Time = False, dry_run: DryRun = False
) -> Inspection | Planned:
    """Write feature maps and statistics of chosen layers, and a page to look at.

    Examples:
        hookcli inspect resnet34 cat.jpg
        hookcli inspect resnet34 photos --layers 'layer4.*' --grids none -o my-run
        hookcli inspect vit_b_16 cat.jpg --layers attention --attention all
        hookcli inspect model.py:make photos --layers all --fail-on nan,inf
    """
    return inspect_run(call, config, dry_run=dry_run, time=time)
