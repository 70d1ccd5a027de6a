"""Models that run as a graph: which calls of modules and operations its nodes belong to.

An exported or compiled model has no modules, but its nodes say which module of the original model
they come from. The output of the last node of a module's call is the output of the call.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch

from hookcli.hooks.layouts import channels_of_operation
from hookcli.hooks.nested import named_tensors
from hookcli.hooks.operations import depth_of, operation_path
from hookcli.passes.runner import ForwardOutcome, Runner
from hookcli.records.calls import Call, LayerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hookcli.hooks.observe import Observer
    from hookcli.passes.runner import Batch

_TORCH = "torch.nn."  # the modules of torch, whose operations are part of them
# Operations that return views or copies: a model with other ones may compute the same.
_VIEWS = frozenset(
    {"alias", "as_strided", "clone", "contiguous", "detach", "expand", "expand_as", "flatten"}
    | {"getitem", "movedim", "narrow", "permute", "reshape", "select", "slice", "split", "squeeze"}
    | {"split_with_sizes", "swapaxes", "t", "to", "transpose", "unbind", "unflatten", "unsqueeze"}
    | {"_to_copy", "_unsafe_view", "_assert_tensor_metadata", "chunk", "copy", "index", "view"}
    | {"lift_fresh_copy", "unfold", "T", "mT", "dropout"}
)


@dataclass(frozen=True, slots=True)
class Scope:
    """A module inside which a node was made.

    Attributes:
        path: the module path.
        kind: the full name of the module's class, such as ``torch.nn.modules.conv.Conv2d``.
        call: a text that differs between the calls of the module, as far as the graph shows it.
    """

    path: str
    kind: str
    call: str = ""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a graph.

    Attributes:
        scopes: the modules inside which the node was made, outermost first, without the model.
        operation: the name of the torch function that the node computes, or is a part of.
        step: a text that all nodes of one call of that function have in common.
        outputs: the names of the values that the node computes.
    """

    scopes: tuple[Scope, ...]
    operation: str
    step: str
    outputs: tuple[str, ...]

    def within(self, prefix: str) -> GraphNode:
        """Return the node with ``prefix`` before its step and the names of its values."""
        outputs = tuple(f"{prefix}{name}" for name in self.outputs)
        return GraphNode(self.scopes, self.operation, f"{prefix}{self.step}", outputs)


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A call of a module or of an operation.

    Attributes:
        layer: the module or the operation.
        call_index: 0 for the first call of the layer, then 1, and so on.
        values: the names of the values that the call returns.
    """

    layer: LayerInfo
    call_index: int
    values: tuple[str, ...]

    def outputs(self, order: int) -> Iterator[tuple[Call, str]]:
        """Yield each output as a ``Call`` of position ``order``, with the name of its value."""
        for number, value in enumerate(self.values):
            key = str(number) if len(self.values) > 1 else ""
            yield Call(self.layer, self.call_index, order, output_key=key), value


def find_calls(nodes: Sequence[GraphNode], kind: str = "Model") -> tuple[GraphCall, ...]:
    """Return the calls of modules and operations that nodes belong to, as the calls end.

    The model itself is not among them. Operations that only return views or copies, and operations
    that are part of a module of torch, are left out. If no node says from which module it comes,
    every node is a call of a layer of its own.

    Args:
        nodes: the nodes of the graph in running order.
        kind: the name of the model's class.
    """
    if not any(node.scopes for node in nodes):
        return _find_bare(nodes)
    scopes = {scope.path: scope for node in nodes for scope in node.scopes}
    parents = {path.rpartition(".")[0] for path in scopes}
    leaves = {path for path in scopes if path not in parents}
    ended: dict[int, list[tuple[str, str, tuple[str, ...]]]] = defaultdict(list)
    for scope, place in _list_ends(nodes):
        ended[place].append((scope.path, scope.kind, nodes[place].outputs))
    layers: dict[str, LayerInfo] = {}
    counts: Counter[str] = Counter()
    calls = []

    def add(layer: LayerInfo, values: tuple[str, ...]) -> None:
        known = layers.setdefault(layer.module_path, layer)
        calls.append(GraphCall(known, counts[layer.module_path], values))
        counts[layer.module_path] += 1

    for place, node in enumerate(nodes):
        inside = node.scopes[-1] if node.scopes else Scope("", kind)
        is_last = place + 1 == len(nodes) or nodes[place + 1].step != node.step
        is_part = inside.path in leaves and inside.kind.startswith(_TORCH)
        if is_last and not is_part and node.operation not in _VIEWS:
            add(_operation_layer(inside.path, node.operation), node.outputs)
        for path, name, values in ended[place]:
            add(_module_layer(path, name, is_leaf=path in leaves), values)
    return tuple(calls)


def _find_bare(nodes: Sequence[GraphNode]) -> tuple[GraphCall, ...]:
    """Return each node as the only call of a layer with the name and the type of the node."""
    layers = [LayerInfo(node.step, node.operation) for node in nodes]
    return tuple(
        GraphCall(layer, 0, node.outputs) for layer, node in zip(layers, nodes, strict=True)
    )


def _list_ends(nodes: Sequence[GraphNode]) -> Iterator[tuple[Scope, int]]:
    """Yield each call of a module, with the place of its last node; inner calls come first."""
    running: list[Scope] = []
    for place, node in enumerate(nodes):
        kept = 0
        for one, two in zip(running, node.scopes, strict=False):
            if one != two:
                break
            kept += 1
        for scope in reversed(running[kept:]):
            yield scope, place - 1
        running = [*running[:kept], *node.scopes[kept:]]
    for scope in reversed(running):
        yield scope, len(nodes) - 1


def _module_layer(path: str, kind: str, *, is_leaf: bool) -> LayerInfo:
    name = kind.rpartition(".")[2]
    return LayerInfo(path, name, depth=path.count(".") + 1, is_leaf=is_leaf)


def _operation_layer(module_path: str, name: str) -> LayerInfo:
    path = operation_path(module_path, name)
    return LayerInfo(path, name, depth_of(module_path), channels=channels_of_operation(name))


@dataclass(slots=True)
class GraphRunner(Runner):
    """Runs a model that is a graph; a subclass computes the values.

    Attributes:
        calls: all calls that the graph shows, in running order.
        layers: the observed layers.
        root: the model itself, as a layer.
        arguments_of: returns the arguments of the model for given pixels.
        shapes: the shape of each value in the last run, by name. Only a tensor of the same shape
            can replace a value.
    """

    calls: Sequence[GraphCall]
    layers: Sequence[LayerInfo]
    root: LayerInfo
    arguments_of: Callable[[Tensor], tuple[object, ...]]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict, kw_only=True)
    merges_calls: ClassVar[bool] = True

    def compute(
        self, arguments: tuple[object, ...], values: Sequence[str]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the outputs of the model, and the values with the given names.

        Raises:
            ForwardError: the model raised an exception.
        """
        raise NotImplementedError

    def compute_fed(
        self, arguments: tuple[object, ...], values: Sequence[str], fed: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the outputs and the values, when the users of ``fed`` values get other tensors.

        The returned values are those that the nodes themselves compute. If the model returns a
        ``fed`` value, the output is the other tensor.

        Raises:
            ForwardError: the model raised an exception.
        """
        raise NotImplementedError

    def run(
        self,
        batch: Batch,
        observer: Observer,
        called: set[str] | None = None,
        seen: Callable[[], Sequence[str]] = tuple,
    ) -> ForwardOutcome:
        chosen = self._list_outputs()
        arguments = self.arguments_of(batch.pixels)
        outputs, values = self.compute(arguments, [value for _, value in chosen])
        for (call, value), tensor in zip(chosen, values, strict=True):
            self.shapes[value] = tuple(tensor.shape)
            observer(call, tensor)
        if called is not None:
            called.update(call.layer.module_path for call, _ in chosen)
        self._observe_root(outputs, observer, called)
        return ForwardOutcome(outputs[0] if len(outputs) == 1 else tuple(outputs))

    def run_fed(
        self, batch: Batch, feed: Callable[[str], NDArray[np.generic] | None], observer: Observer
    ) -> None:
        chosen = self._list_outputs()
        fed: dict[str, Tensor] = {}
        for call, value in chosen:
            given = feed(call.id)
            fits = given is not None and given.shape == self.shapes.get(value)
            if given is not None and fits and value not in fed:
                fed[value] = torch.from_numpy(given)
        names = [value for _, value in chosen]
        outputs, values = self.compute_fed(self.arguments_of(batch.pixels), names, fed)
        for (call, _), tensor in zip(chosen, values, strict=True):
            observer(call, tensor)
        self._observe_root(outputs, observer)

    def _list_outputs(self) -> list[tuple[Call, str]]:
        """Return the outputs of the observed layers' calls, with the names of their values."""
        paths = {layer.module_path: layer for layer in self.layers}
        found: list[tuple[Call, str]] = []
        for order, call in enumerate(self.calls, 1):
            layer = paths.get(call.layer.module_path)
            if layer is not None and layer.has_call(call.call_index):
                found += call.outputs(order)
        return found

    def _observe_root(
        self, outputs: Sequence[Tensor], observer: Observer, called: set[str] | None = None
    ) -> None:
        if self.root not in self.layers:
            return
        if called is not None:
            called.add("")
        for number, tensor in enumerate(outputs):
            key = str(number) if len(outputs) > 1 else ""
            observer(Call(self.root, 0, len(self.calls) + 1, output_key=key), tensor)


def flatten(arguments: tuple[object, ...]) -> list[Tensor]:
    """Return the tensors in the arguments of a model, in the order in which graphs take them."""
    return [tensor for _, tensor in named_tensors(arguments)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep an exporter from printing in the ``with`` block."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
