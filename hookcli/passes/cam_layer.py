"""Choose the layer for ``--cam auto``: the last before the head with places that matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from hookcli.activations.feature_maps import as_maps
from hookcli.errors import RequestError
from hookcli.hooks.gradients import need_gradients, observe_gradients
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.observe import reading
from hookcli.passes.call import call_backward
from hookcli.passes.features import list_before_head
from hookcli.passes.find_operations import infer_layouts
from hookcli.records.text import shape_text

if TYPE_CHECKING:
    from torch import Tensor

    from hookcli.networks.load import LoadedModel
    from hookcli.networks.scores import Scorer
    from hookcli.passes.eager import EagerRunner
    from hookcli.records.calls import Call

_IN_ATTENTION = re.compile(r"(^|[._])(attn|attention)\w*\.", re.IGNORECASE)


def choose_cam_layer(loaded: LoadedModel, runner: EagerRunner, scorer: Scorer) -> tuple[str, str]:
    """Return the module path of the layer, and the reason in words; run the model three times.

    Raise a RequestError if no layer has places on which the score depends.
    """
    # After the last block of a vision transformer, the score depends on the class token alone: a
    # map of the other tokens would be zero everywhere.
    calls, head = list_before_head(loaded, runner)
    found: dict[str, tuple[int, int]] = {}
    pixels = runner.to_device(loaded.pixels_to_try())
    size = runner.size_of(pixels)

    def look(call: Call, gradient: Tensor) -> None:
        layout = call.layout_of(tuple(gradient.shape), size)
        is_map = call.side == "grad_output" and layout.is_spatial and len(gradient) == 1
        if is_map and as_maps(gradient, layout).any():
            found[call.layer.module_path] = layout.height, layout.width

    layers = infer_layouts(loaded, list_watchable(runner.module))
    with (
        runner.unchanged(),
        need_gradients(runner.module),
        torch.enable_grad(),
        observe_gradients(runner.module, layers, look),
        reading(runner.module, scorer.call) as read,
    ):
        call_backward(scorer.score(read(runner.call(pixels))).value)
    ended = [call.layer.module_path for call in calls if call.layer.module_path in found]
    if not any(ended):
        what = "`cams=('auto',)`: no layer before the head has places that the score depends on"
        raise RequestError(what, "name a layer: `cams=('FORM',)`")
    # The queries, keys and values of attention are no maps of what the block looks at.
    outside = [each for each in ended if each and not _IN_ATTENTION.search(each)]
    path = [each for each in outside or ended if each][-1]
    before = f" before {head}" if head else ""
    why = f"the last layer{before} with places that the score depends on"
    return path, f"{path}, {shape_text(found[path])} places: {why}"
