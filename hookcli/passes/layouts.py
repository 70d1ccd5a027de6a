"""A forward pass of one black image that finds the layouts which layers' types leave open."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.layouts import LayoutWatcher
from hookcli.hooks.watch import watch
from hookcli.passes.call import call_model
from hookcli.passes.find_operations import find_operations
from hookcli.passes.unchanged import unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookcli.models.load import LoadedModel
    from hookcli.records.calls import LayerInfo


def infer_layouts(loaded: LoadedModel, layers: Sequence[LayerInfo]) -> tuple[LayerInfo, ...]:
    """Return the layers with all layouts that could be inferred for them.

    If a layer's type does not show where it has its channels, the model runs once. Afterwards the
    model's buffers, its modules' attributes and the random number generator are as before. If the
    model raises, nothing is inferred.

    Raises:
        ModelError: the model has deleted the working directory.
    """
    module, inputs = loaded.module, loaded.inputs
    parameters = list(module.parameters())
    if not any(layer.channels.needs_inference for layer in layers) or any(map(is_lazy, parameters)):
        return tuple(layers)
    pixels = loaded.pixels_to_try()
    watched = list(list_watchable(module))
    with contextlib.suppress(ForwardError), torch.no_grad(), unchanged(module):
        if any(layer.is_operation for layer in layers):  # its input may come from any layer
            found = find_operations(module, inputs.arguments_of(pixels))
            watched += [each.layer for each in found]
        watcher = LayoutWatcher(inputs.size_of(pixels))
        with watch(module, watched, watcher.started, watcher.finished):
            call_model(module, inputs.arguments_of(pixels))
        return tuple(map(watcher.infer, layers))
    return tuple(layers)
