"""Models that run as a graph: which calls of modules and operations its nodes belong to.

An exported or compiled model has no modules, but its nodes say which module of the original model
they come from. The output of the last node of a module's call is the output of the call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookcli.hooks.layers import channels_of_class, family_of_class, family_of_operation
from hookcli.hooks.layouts import channels_of_operation
from hookcli.hooks.operations import depth_of, operation_path
from hookcli.models.modules import WRAPPER, strip_wrapped
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layouts import Channels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ONNX = "onnx."  # before the operators of a module whose class is not known
_WHOLE = ("torch.nn.", ONNX)  # modules whose operations are part of them
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
        weights: the names of the weights that the node uses, each with its number of values.
        family: the family of what the node computes, such as ``conv``; empty if it is not known.
        call_index: which call of the function in its module the node belongs to, counted from 0;
            None if the graph does not say it, and all calls are in the graph.
    """

    scopes: tuple[Scope, ...]
    operation: str
    step: str
    outputs: tuple[str, ...]
    weights: tuple[tuple[str, int], ...] = ()
    family: str = ""
    call_index: int | None = None

    def within(self, prefix: str) -> GraphNode:
        """Return the node with ``prefix`` before its step and the names of its values."""
        outputs = tuple(f"{prefix}{name}" for name in self.outputs)
        return replace(self, step=f"{prefix}{self.step}", outputs=outputs)

    def without_wrappers(self) -> GraphNode:
        """Return the node without the modules of torch.compile around its own modules."""
        inner = (each for each in self.scopes if not each.kind.endswith(f".{WRAPPER}"))
        scopes = (replace(each, path=strip_wrapped(each.path)) for each in inner)
        return replace(self, scopes=tuple(scope for scope in scopes if scope.path))


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A call of a module or of an operation.

    Attributes:
        layer: the module or the operation.
        call_index: 0 for the first call of the layer, then 1, and so on.
        values: the names of the values that the call returns.
        start: the position of the call's first node in the graph.
        families: the families of the module's class or of the operation. A BatchNorm is a
            convolution, too, if a convolution was merged into it.
    """

    layer: LayerInfo
    call_index: int
    values: tuple[str, ...]
    start: int
    families: tuple[str, ...] = ()

    def outputs(self, order: int) -> Iterator[tuple[Call, str]]:
        """Yield each output as a ``Call`` of position ``order``, with the name of its value."""
        for number, value in enumerate(self.values):
            key = str(number) if len(self.values) > 1 else ""
            yield Call(self.layer, self.call_index, order, output_key=key), value


@dataclass(frozen=True, slots=True)
class Graph:
    """What hookcli knows of a graph without running it.

    Attributes:
        calls: all calls that the graph shows, in the order in which they end.
        root: the model itself, as a layer.
        names_modules: whether the nodes say which modules of the original model they come from.
    """

    calls: Sequence[GraphCall]
    root: LayerInfo
    names_modules: bool

    @classmethod
    def of(cls, nodes: Iterable[GraphNode]) -> Graph:
        """Return what the nodes of a graph, in running order, say about its calls."""
        listed = [node.without_wrappers() for node in nodes]
        weights = dict(weight for node in listed for weight in node.weights)
        root = LayerInfo("", "Model", depth=0, is_leaf=False, params=sum(weights.values()))
        return cls(find_calls(listed), root, names_modules=any(node.scopes for node in listed))

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        """The model itself, and the layers of all calls."""
        layers: dict[str, LayerInfo] = {}
        for call in self.calls:
            layers.setdefault(call.layer.module_path, call.layer)
        return (self.root, *layers.values())


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
        return tuple(_find_bare(nodes))
    scopes = {scope.path: scope for node in nodes for scope in node.scopes}
    parents = {path.rpartition(".")[0] for path in scopes}
    leaves = {path for path in scopes if path not in parents}
    ended: dict[int, list[tuple[Scope, int]]] = defaultdict(list)
    for scope, start, end in _list_stretches(nodes):
        ended[end].append((scope, start))
    counts: Counter[str] = Counter()
    calls: list[GraphCall] = []
    axes = _Axes()
    params = _count_weights(nodes)
    layers: dict[str, LayerInfo] = {}

    def add(layer: LayerInfo, values: tuple[str, ...], start: int, *families: str) -> None:
        path, channels = layer.module_path, axes.find(layer, values, families)
        layer = replace(layer, params=params.get(path, 0), channels=channels)
        layer = layers.setdefault(path, layer)
        calls.append(GraphCall(layer, counts[path], values, start, families))
        counts[path] += 1

    for place, node in enumerate(nodes):
        inside = node.scopes[-1] if node.scopes else Scope("", kind)
        is_last = place + 1 == len(nodes) or nodes[place + 1].step != node.step
        is_part = inside.path in leaves and inside.kind.startswith(_WHOLE)
        if is_last and not is_part and node.operation not in _VIEWS:
            layer = _operation_layer(inside.path, node.operation)
            if node.call_index is not None:
                counts[layer.module_path] = node.call_index
            add(layer, node.outputs, place, family_of_operation(node.operation))
        for scope, start in ended[place]:
            python_module, _, name = scope.kind.rpartition(".")
            depth, is_leaf = scope.path.count(".") + 1, scope.path in leaves
            layer = LayerInfo(scope.path, name, depth, is_leaf)
            operators = map(family_of_operation, name.split("+"))
            family = family_of_class(name, python_module) or next(filter(None, operators), "")
            families = {family: None}
            if is_leaf and "norm" in families:
                families |= {each.family: None for each in nodes[start : place + 1]}
            add(layer, node.outputs, start, *families)
    return tuple(calls)


def _find_bare(nodes: Sequence[GraphNode]) -> Iterator[GraphCall]:
    """Yield each node as the only call of a layer with the name and the type of the node."""
    axes = _Axes()
    for place, node in enumerate(nodes):
        family = family_of_operation(node.operation)
        layer = LayerInfo(node.step, node.operation, params=sum(dict(node.weights).values()))
        layer = replace(layer, channels=axes.find(layer, node.outputs, (family,)))
        yield GraphCall(layer, 0, node.outputs, place, (family,))


def _list_stretches(nodes: Sequence[GraphNode]) -> Iterator[tuple[Scope, int, int]]:
    """Yield each call of a module, inner calls first, with its first and last node's places."""
    running: list[tuple[Scope, int]] = []
    for place, node in enumerate(nodes):
        kept = 0
        for (one, _), two in zip(running, node.scopes, strict=False):
            if one != two:
                break
            kept += 1
        for scope, start in reversed(running[kept:]):
            yield scope, start, place - 1
        running = [*running[:kept], *((scope, place) for scope in node.scopes[kept:])]
    for scope, start in reversed(running):
        yield scope, start, len(nodes) - 1


def _count_weights(nodes: Sequence[GraphNode]) -> Mapping[str, int]:
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for node in nodes:
        for scope in node.scopes:
            used[scope.path].update(node.weights)
    return {path: sum(weights.values()) for path, weights in used.items()}


class _Axes:
    """Finds the channel axis of each call, as far as the types of the layers show it.

    A module returns the value of a call inside it, with the same axes. An elementwise layer has the
    axes of the layer before it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Channels] = {}
        self._neighbour = Channels.UNKNOWN

    def find(
        self, layer: LayerInfo, values: tuple[str, ...], families: tuple[str, ...]
    ) -> Channels:
        found = self._find(layer, values, families)
        if found in (Channels.FIRST, Channels.LAST):
            self._neighbour = found.of_neighbour
        elif found is Channels.LIKELY_LAST and families[0] == "norm":
            self._neighbour = found
        elif found is Channels.UNKNOWN and layer.is_leaf:
            self._neighbour = Channels.UNKNOWN  # after a Permute, for example, it may differ
        self._known[values] = found
        return found

    def _find(
        self, layer: LayerInfo, values: tuple[str, ...], families: tuple[str, ...]
    ) -> Channels:
        by_name = layer.channels
        if not layer.is_operation:
            if layer.module_type == "LayerNormalization":
                return Channels.LAST
            if layer.module_type in ("LayerNorm", "RMSNorm"):
                return Channels.LIKELY_LAST  # other libraries have one of this name for NCHW
            by_name = channels_of_class(layer.module_type, families[0])
        if by_name in (Channels.FIRST, Channels.LAST):
            return by_name
        is_elementwise = families[0] in ("act", "dropout") or layer.module_type == "Identity"
        if is_elementwise or by_name is Channels.BY_INPUT:
            return Channels.SAME if self._neighbour is Channels.UNKNOWN else self._neighbour
        return self._known.get(values, by_name)


def _operation_layer(module_path: str, name: str) -> LayerInfo:
    path = operation_path(module_path, name)
    return LayerInfo(path, name, depth_of(module_path), channels=channels_of_operation(name))
