"""The verb ``gradients``."""

from __future__ import annotations

from hookcli.config import GradientsConfig
from hookcli.verbs.call import Call
from hookcli.verbs.inspection import DryRun, Inspection, Planned, Time, inspect_run
from hookcli.verbs.keywords import verb
from hookcli.verbs.outcome import TABLES


@verb(*TABLES)
def gradients(
    call: Call, config: GradientsConfig, time: Time = False, dry_run: DryRun = False
) -> Inspection | Planned:
    """Write gradients of chosen layers and of their weights, and draw Grad-CAM and saliency.

    Examples:
        hookcli gradients resnet34 cat.jpg --target tabby
        hookcli gradients resnet34 cat.jpg --cam layer4 --saliency
        hookcli gradients model.py:make cat.jpg --layers all --fail-on nan,exploding
    """
    return inspect_run(call, config, dry_run=dry_run, time=time)
