"""Declare ``gradients`` as a function and a command; the work is in ``inspection_outcome``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookcli.config import DryRun, GradientsConfig, Open, Time
from hookcli.verbs.call import VerbCall
from hookcli.verbs.keywords import TABLES, verb

if TYPE_CHECKING:  # takes 30 ms, which --help does not need
    from hookcli.verbs.inspection_outcome import Inspection, Planned


@verb(*TABLES)
def gradients(
    call: VerbCall,
    config: GradientsConfig,
    time: Time = False,
    dry_run: DryRun = False,
    open_page: Open = False,
) -> Inspection | Planned:
    """Write gradients of chosen layers and of their weights, and draw Grad-CAM and saliency.

    Examples:
        hookcli gradients resnet34 cat.jpg --target tabby
        hookcli gradients resnet34 cat.jpg --cam layer4 --saliency
        hookcli gradients model.py:make cat.jpg --layers all --fail-on nan,exploding
    """
    from hookcli.verbs.inspection_outcome import inspect_run

    return inspect_run(call, config, dry_run=dry_run, time=time, open_page=open_page)
