"""Run a model to find its functional operations, and channel axes that layer types do not show."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch
from torch.nn.parameter import is_lazy

from hookcli.errors import ForwardError
from hookcli.hooks.channel_trails import follow_channels
from hookcli.hooks.filter import name_operations
from hookcli.hooks.layers import list_layers, list_watchable
from hookcli.hooks.layouts import LayoutWatcher, channels_of_operation
from hookcli.hooks.nested import map_tensors, named_tensors
from hookcli.hooks.operations import (
    FoundOperation,
    begin_operation,
    depth_of,
    listen_to_operations,
    may_compute,
    split_path,
    without_fast_path,
)
from hookcli.hooks.watch import watch
from hookcli.passes.call import call_model
from hookcli.passes.unchanged import unchanged
from hookcli.records.calls import LayerInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from hookcli.hooks.operations import Listener, OpenOperation, OperationCall
    from hookcli.networks.load import LoadedModel


def find_named_operations(
    loaded: LoadedModel, *options: Sequence[str]
) -> tuple[FoundOperation, ...]:
    if not name_operations(*options):
        return ()
    return find_operations(loaded.module, loaded.inputs.arguments_of(loaded.pixels_to_try()))


def find_operations(model: nn.Module, arguments: tuple[object, ...]) -> tuple[FoundOperation, ...]:
    # leaves out operations inside torch's own leaf modules, and those that return no tensor
    finder = _Finder()
    with torch.inference_mode(False):  # in inference mode, tensors have no write counter
        own = map_tensors(arguments, lambda _, tensor: tensor.clone())
        with unchanged(model):
            run_watched(model, cast("tuple[object, ...]", own), finder)
    modules = {layer.module_path: layer for layer in list_layers(model)}
    found, root = [], modules[""]
    for path, seen in finder.seen.items():
        module_path, name = split_path(path)
        if seen.returns:
            channels, tokens = channels_of_operation(name), modules.get(module_path, root).tokens
            depth, computes = depth_of(module_path), seen.computes and may_compute(name)
            layer = LayerInfo(path, name, depth, channels=channels, tokens=tokens)
            found.append(FoundOperation(layer, tuple(seen.moments), computes))
    return tuple(found)


def run_watched(model: nn.Module, arguments: tuple[object, ...], listener: Listener) -> None:
    with torch.no_grad(), listen_to_operations(model, list_watchable(model), listener):
        call_model(model, arguments)


@dataclass(slots=True)
class _Trace:
    moments: list[int] = field(default_factory=list)  # positions among all operations' calls
    returns: bool = False  # whether any call returned a tensor
    computes: bool = False  # whether any call computed new values


@dataclass(slots=True)
class _Finder:
    seen: dict[str, _Trace] = field(default_factory=dict)  # by operation path
    _moments: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, operation: OperationCall) -> OpenOperation | None:
        if operation.in_torch:
            return None
        self.seen.setdefault(operation.path, _Trace()).moments.append(next(self._moments))
        return begin_operation(operation)

    def end(self, call: object, output: object) -> None:
        operation = cast("OpenOperation", call)
        seen = self.seen[operation.path]
        seen.returns |= any(True for _ in named_tensors(output))
        seen.computes = seen.computes or operation.computes(output)


def infer_layouts(loaded: LoadedModel, layers: Sequence[LayerInfo]) -> tuple[LayerInfo, ...]:
    # hookcli runs the model only if the type of a layer leaves the position of the channel axis
    # open. If the model raises or has lazy parameters, the layers are returned unchanged.
    module, inputs = loaded.module, loaded.inputs
    if _is_open(module, layers):
        pixels = loaded.pixels_to_try()
        with contextlib.suppress(ForwardError):
            return infer_from(module, inputs.arguments_of(pixels), layers, inputs.size_of(pixels))
    return tuple(layers)


def infer_from(
    module: nn.Module,
    arguments: tuple[object, ...],
    layers: Sequence[LayerInfo],
    size: tuple[int, int] | None = None,
) -> tuple[LayerInfo, ...]:
    if not _is_open(module, layers):
        return tuple(layers)
    watched = list(list_watchable(module))
    with torch.no_grad(), unchanged(module):
        if any(layer.is_operation for layer in layers):  # its input may come from any operation
            watched += [each.layer for each in find_operations(module, arguments)]
        watcher = LayoutWatcher(size, follow_channels(module, arguments))
        watching = watch(module, watched, watcher.started, watcher.finished)
        with without_fast_path(), watching, watcher.trails:
            call_model(module, arguments)
    return tuple(map(watcher.infer, layers))


def _is_open(module: nn.Module, layers: Sequence[LayerInfo]) -> bool:
    needed = any(layer.channels.needs_inference for layer in layers)
    return needed and not any(map(is_lazy, module.parameters()))
