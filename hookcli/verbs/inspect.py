"""Declare ``inspect`` as a function and a command; the work is in ``inspection_outcome``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.config import DryRun, InspectConfig, Open, Time
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import TABLES, verb

if TYPE_CHECKING:  # takes 30 ms, which --help does not need
    from hookcli.verbs.inspection_outcome import Inspection, Planned


@verb(*TABLES)
def inspect(
    call: VerbCall,
    config: InspectConfig,
    time: Time = False,
    dry_run: DryRun = False,
    open_page: Open = False,
) -> Inspection | Planned:
    """Write feature maps and statistics of chosen layers, and a page to look at.

    Examples:
        hookcli inspect resnet34 cat.jpg
        hookcli inspect resnet34 photos --layers 'layer4.*' --grids none -o my-run
        hookcli inspect vit_b_16 cat.jpg --layers attention --attention all
        hookcli inspect model.py:make photos --layers all --fail-on nan,inf
    """
    from hookcli.verbs.inspection_outcome import inspect_run

    return inspect_run(call, config, dry_run=dry_run, time=time, open_page=open_page)
