"""Models that run as a graph: which calls of modules and operations its nodes belong to.

An exported or compiled model has no modules, but its nodes say which module of the original model
they come from. The output of the last node of a module's call is the output of the call.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from hookcli.hooks.layers import channels_of_class, family_of_class, family_of_operation
from hookcli.hooks.layouts import channels_of_operation
from hookcli.hooks.operations import depth_of, operation_path
from hookcli.models.modules import WRAPPER, strip_wrapped
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layouts import Channels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_TORCH = "torch.nn."  # the modules of torch, whose operations are part of them
ONNX = "onnx."  # before the operators of a module whose class is not known
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
        index: which call of the module it is, counted from 0; None if the graph does not say it.
    """

    path: str
    kind: str
    call: str = ""
    index: int | None = None


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
        inputs: the names of the values that the node reads.
        is_told: whether the node says where it was made. Nodes that a tool added do not.
        left_out: why hookcli shows no value of the node; empty if it shows one.
    """

    scopes: tuple[Scope, ...]
    operation: str
    step: str
    outputs: tuple[str, ...]
    weights: tuple[tuple[str, int], ...] = ()
    family: str = ""
    call_index: int | None = None
    inputs: tuple[str, ...] = ()
    is_told: bool = True
    left_out: str = ""

    def within(self, prefix: str) -> GraphNode:
        """Return the node with ``prefix`` before its step and the names of its values."""
        outputs, inputs = (
            tuple(f"{prefix}{name}" for name in names) for names in (self.outputs, self.inputs)
        )
        return replace(self, step=f"{prefix}{self.step}", outputs=outputs, inputs=inputs)

    def without_indices(self) -> GraphNode:
        """Return the node without the indices of the calls of its modules."""
        return replace(self, scopes=tuple(replace(each, index=None) for each in self.scopes))

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
        nodes: how many nodes belong to this call, and to no call inside it.
    """

    layer: LayerInfo
    call_index: int
    values: tuple[str, ...]
    start: int
    families: tuple[str, ...] = ()
    nodes: int = 1

    def outputs(self, order: int) -> Iterator[tuple[Call, str]]:
        """Yield each output as a ``Call`` of position ``order``, with the name of its value."""
        for number, value in enumerate(self.values):
            key = str(number) if len(self.values) > 1 else ""
            yield Call(self.layer, self.call_index, order, output_key=key), value


@dataclass(frozen=True, slots=True)
class Graph:
    """What hookcli knows of a graph without running it.

    Every node belongs to one call, or is left out.

    Attributes:
        calls: all calls that the graph shows, in the order in which they end.
        root: the model itself, as a layer.
        names_modules: whether the nodes say which modules of the original model they come from.
        left_out: the operation of each node that belongs to no call, and the reason.
        untold: the paths of the layers that are nodes of a tool in a graph that names modules.
        counted: how many calls a module has, by path, if their indices were only counted: the
            graph may lack earlier calls.
        reasons: why an exporter may have left out a call, by the id of the call.
        returned: the names of the values that the graph returns.
        is_inferred: whether hookcli inferred the calls from names, so that there may be others.
    """

    calls: Sequence[GraphCall]
    root: LayerInfo
    names_modules: bool
    left_out: Sequence[tuple[str, str]] = ()
    untold: frozenset[str] = frozenset()
    counted: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    returned: frozenset[str] = frozenset()
    is_inferred: bool = False

    @classmethod
    def of(
        cls,
        nodes: Iterable[GraphNode],
        returned: Iterable[str] = (),
        reasons: Mapping[str, str] = MappingProxyType({}),
        *,
        is_inferred: bool = False,
    ) -> Graph:
        """Return what the nodes of a graph, in running order, say about its calls.

        ``returned``, ``reasons`` and ``is_inferred`` are as the attributes.
        """
        listed = [node.without_wrappers() for node in nodes]
        shown = [node for node in listed if not node.left_out]
        weights = dict(weight for node in listed for weight in node.weights)
        root = LayerInfo("", "Model", depth=0, is_leaf=False, params=sum(weights.values()))
        returned = frozenset(returned)
        left_out = [(node.operation, node.left_out) for node in listed if node.left_out]
        names_modules = any(node.scopes for node in shown)
        if not names_modules:
            calls = tuple(_find_bare(shown))
            return cls(calls, root, names_modules, left_out, returned=returned)
        finder = _Finder(_place_untold(shown, returned), returned)
        found = tuple(finder.find())
        own = Counter(call.layer.module_path for call in found)
        return cls(
            found,
            root,
            names_modules,
            [*left_out, *finder.left_out],
            frozenset(finder.untold),
            {path: own[path] for path in (own if is_inferred else finder.counted)},
            reasons,
            returned,
            is_inferred,
        )

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the model itself and of the modules and operations that the graph names."""
        return frozenset(layer.module_path for layer in self.layers) - self.untold

    def count_values(self, path: str, index: int) -> int:
        """Return the number of values that a call returns."""
        calls = (call for call in self.calls if call.layer.module_path == path)
        found = (len(call.values) for call in calls if call.call_index == index)
        return next(found, 0) if path else len(self.returned)

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        """The model itself, and the layers of all calls."""
        layers: dict[str, LayerInfo] = {}
        for call in self.calls:
            layers.setdefault(call.layer.module_path, call.layer)
        return (self.root, *layers.values())


def find_calls(nodes: Sequence[GraphNode]) -> Sequence[GraphCall]:
    """Return the calls of modules and operations that nodes belong to, as the calls end.

    The model itself is not among them. Operations that only return views or copies, and operations
    that are part of a module of torch, are left out. If no node says from which module it comes,
    every node is a call of a layer of its own.
    """
    return Graph.of(nodes).calls


@dataclass(slots=True)
class _Group:
    """The nodes of one call of a module."""

    scope: Scope
    depth: int
    places: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)  # those that are in no call inside this one


class _Finder:
    """Finds the calls in a graph that names modules."""

    def __init__(self, nodes: Sequence[GraphNode], returned: Collection[str]) -> None:
        self._nodes, self._returned = nodes, returned
        self.left_out: list[tuple[str, str]] = []
        self.untold: dict[str, None] = {}
        self.counted: set[str] = set()
        self._users: dict[str, set[int]] = defaultdict(set)
        self._made: dict[str, int] = {}
        for place, node in enumerate(nodes):
            self._made |= dict.fromkeys(node.outputs, place)
            for name in node.inputs:
                self._users[name].add(place)

    def find(self) -> Iterator[GraphCall]:
        nodes = self._nodes
        paths = {scope.path for node in nodes for scope in node.scopes}
        leaves = paths - {path.rpartition(".")[0] for path in paths}
        groups = _list_groups(nodes)
        innermost = {place: group for group in groups for place in group.places}  # inner ones last
        ended: dict[int, list[_Group]] = defaultdict(list)
        for group in reversed(groups):
            ended[group.places[-1]].append(group)
        counts: Counter[str] = Counter()
        axes = _Axes()
        params = _count_weights(nodes)
        layers: dict[str, LayerInfo] = {}
        parts = 0  # earlier nodes of the function that a node computes

        def make(
            layer: LayerInfo, values: tuple[str, ...], start: int, families: Iterable[str], own: int
        ) -> GraphCall:
            path, families = layer.module_path, tuple(families)
            channels = axes.find(layer, values[-1:], families)
            layer = replace(layer, params=params.get(path, layer.params), channels=channels)
            layer = layers.setdefault(path, layer)
            counts[path] += 1
            return GraphCall(layer, counts[path] - 1, values, start, families, own)

        for place, node in enumerate(nodes):
            inside = node.scopes[-1] if node.scopes else Scope("", "")
            is_last = place + 1 == len(nodes) or nodes[place + 1].step != node.step
            is_part = inside.path in leaves and inside.kind.startswith((_TORCH, ONNX))
            if is_part or (node.is_told and node.operation in _VIEWS):
                if node.scopes:
                    innermost[place].own.append(place)
                else:
                    self.left_out.append((node.operation, "only moves values"))
            elif not is_last:
                parts += 1
            else:
                layer = _operation_layer(inside.path, node.operation)
                if not node.is_told:
                    path = "/".join(filter(None, (inside.path, node.step)))
                    size = sum(dict(node.weights).values())
                    layer = LayerInfo(path, node.operation, depth_of(inside.path), params=size)
                    self.untold[path] = None
                if node.call_index is not None:
                    counts[layer.module_path] = node.call_index
                families = (family_of_operation(node.operation),)
                yield make(layer, node.outputs, place, families, parts + 1)
                parts = 0
            for group in ended[place]:
                scope, start = group.scope, group.places[0]
                python_module, _, name = scope.kind.rpartition(".")
                is_leaf = scope.path in leaves
                layer = LayerInfo(scope.path, name, scope.path.count(".") + 1, is_leaf)
                families = [family_of_class(name, python_module)]
                families += map(family_of_operation, name.split("+"))
                found = {next(filter(None, families), ""): None}
                if is_leaf and "norm" in found:
                    found |= {nodes[each].family: None for each in group.places}
                if self._ends_elsewhere(group):
                    why = "the end of its module was merged into another module"
                    self.left_out += [(nodes[each].operation, why) for each in group.own]
                    continue
                if scope.index is None:
                    self.counted.add(scope.path)
                else:
                    counts[scope.path] = scope.index
                values = self._list_values(group, is_single=is_leaf and _is_single(scope))
                yield make(layer, values, start, found, len(group.own))

    def _list_values(self, group: _Group, *, is_single: bool) -> tuple[str, ...]:
        """Return the values of a call that others use, in running order."""
        last = self._nodes[group.places[-1]].outputs
        if is_single or not any(self._is_used(name) for name in last):  # written in place
            return last
        inside = set(group.places)
        found = (name for place in group.places for name in self._nodes[place].outputs)
        escaping = (name for name in found if name in self._returned or self._users[name] - inside)
        return tuple(escaping) or last

    def _is_used(self, name: str) -> bool:
        return name in self._returned or bool(self._users[name])

    def _ends_elsewhere(self, group: _Group) -> bool:
        """Return whether the last layer of a module was merged into a norm outside the module."""
        last = group.places[-1]
        users = {place for name in self._nodes[last].outputs for place in self._users[name]}
        path = f"{group.scope.path}."
        return any(
            name.startswith(path)
            for place in users.difference(group.places)
            if self._nodes[place].family in ("conv", "linear")
            for name, _ in self._nodes[place].weights
        )


def _is_single(scope: Scope) -> bool:
    """Return whether a module of torch returns one tensor."""
    return scope.kind.startswith(_TORCH) and not scope.kind.endswith("Attention")


def _list_groups(nodes: Sequence[GraphNode]) -> list[_Group]:
    """Return the calls of modules as they start; if the graph has no indices, a call has no gap."""
    found: dict[object, _Group] = {}
    running: list[tuple[Scope, object]] = []
    for place, node in enumerate(nodes):
        kept = 0
        for (one, _), two in zip(running, node.scopes, strict=False):
            if one != two:
                break
            kept += 1
        running = running[:kept]
        for depth, scope in enumerate(node.scopes):
            if depth >= kept:
                key = place if scope.index is None else scope.index
                running.append((scope, (scope.path, scope.index is None, key)))
            found.setdefault(running[depth][1], _Group(scope, depth)).places.append(place)
    return sorted(found.values(), key=lambda group: group.depth)


def _place_untold(nodes: Sequence[GraphNode], returned: Collection[str]) -> list[GraphNode]:
    """Return the nodes, those of tools in the module in which all lies that they read and feed."""
    made = {name: place for place, node in enumerate(nodes) for name in node.outputs}
    links: dict[int, set[int]] = defaultdict(set)  # -1 is outside the graph
    for place, node in enumerate(nodes):
        others = {made.get(name, -1) for name in node.inputs}
        for other in others | ({-1} if not returned.isdisjoint(node.outputs) else set()):
            links[place].add(other)
            links[other].add(place)
    placed = [*nodes]
    waiting = {place for place, node in enumerate(nodes) if not node.is_told}
    while waiting:
        together = [waiting.pop()]
        rim: set[int] = set()
        for place in together:  # grows in the loop
            added = links[place] & waiting
            waiting -= added
            together += added
            rim |= links[place]
        around = [nodes[place].scopes if place >= 0 else () for place in rim.difference(together)]
        levels = itertools.takewhile(lambda level: len({*level}) == 1, zip(*around, strict=False))
        scopes = tuple(level[0] for level in levels)
        for place in together:
            placed[place] = replace(nodes[place], scopes=scopes)
    return placed


def _find_bare(nodes: Sequence[GraphNode]) -> Iterator[GraphCall]:
    """Yield each node as the only call of a layer with the name and the type of the node."""
    axes = _Axes()
    for place, node in enumerate(nodes):
        family = family_of_operation(node.operation)
        layer = LayerInfo(node.step, node.operation, params=sum(dict(node.weights).values()))
        layer = replace(layer, channels=axes.find(layer, node.outputs, (family,)))
        yield GraphCall(layer, 0, node.outputs, place, (family,))


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
