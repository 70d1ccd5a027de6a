"""Run a model to find the layouts that the types of its layers leave open."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.channel_trails import follow_channels
from hookcli.hooks.layers import list_watchable
from hookcli.hooks.layouts import LayoutWatcher
from hookcli.hooks.operations import without_fast_path
from hookcli.hooks.watch import watch
from hookcli.passes.call import call_model
from hookcli.passes.find_operations import find_operations
from hookcli.passes.unchanged import unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from hookcli.networks.load import LoadedModel
    from hookcli.records.calls import LayerInfo


def infer_layouts(loaded: LoadedModel, layers: Sequence[LayerInfo]) -> tuple[LayerInfo, ...]:
    """Return ``layers``, each with the layout that hookcli could infer for it.

    If the type of any layer leaves the position of the channel axis open, hookcli runs the model
    (twice if there are functional operations among ``layers``). If the model raises an exception or
    has lazy parameters, the layers are returned unchanged.
    """
    module, inputs = loaded.module, loaded.inputs
    if not _is_open(module, layers):
        return tuple(layers)
    pixels = loaded.pixels_to_try()
    with contextlib.suppress(ForwardError):
        arguments = inputs.arguments_of(pixels)
        return infer_from(module, arguments, layers, inputs.size_of(pixels))
    return tuple(layers)


def infer_from(
    module: nn.Module,
    arguments: tuple[object, ...],
    layers: Sequence[LayerInfo],
    size: tuple[int, int] | None = None,
) -> tuple[LayerInfo, ...]:
    """Return ``layers`` with the layouts that a forward pass with ``arguments`` shows.

    ``size`` is the height and width of the layers' input; None if it will be unknown later, too.
    """
    if not _is_open(module, layers):
        return tuple(layers)
    watched = list(list_watchable(module))
    with torch.no_grad(), unchanged(module):
        if any(layer.is_operation for layer in layers):  # its input may come from any operation
            watched += [each.layer for each in find_operations(module, arguments)]
        watcher = LayoutWatcher(size, follow_channels(module, arguments))
        with (
            without_fast_path(),
            watch(module, watched, watcher.started, watcher.finished),
            watcher.trails,
        ):
            call_model(module, arguments)
    return tuple(map(watcher.infer, layers))


def _is_open(module: nn.Module, layers: Sequence[LayerInfo]) -> bool:
    needed = any(layer.channels.needs_inference for layer in layers)
    return needed and not any(map(is_lazy, module.parameters()))
