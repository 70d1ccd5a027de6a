"""Group the nodes of a graph (ONNX, torch.fx) into calls of modules; find their channel axes.

An exported or compiled model has no modules, but its nodes say which module of the original model
they come from. The output of the last node of a module's call is the output of the call.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from hookcli.hooks.layers import channels_of_class, family_of_class, family_of_operation
from hookcli.hooks.layouts import channels_of_operation
from hookcli.hooks.operations import depth_of, operation_path
from hookcli.networks.modules import WRAPPER, strip_wrapped
from hookcli.records.calls import Call, LayerInfo
from hookcli.records.layouts import Channels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_TORCH = "torch.nn."  # the modules of torch, whose operations are part of them
ONNX = "onnx."  # before the operators inside a layer, if its class is not known
# Operations that return views or copies: a model with other ones may compute the same.
_VIEWS = frozenset(
    {"alias", "as_strided", "clone", "contiguous", "detach", "expand", "expand_as", "flatten"}
    | {"getitem", "movedim", "narrow", "permute", "reshape", "select", "slice", "split", "squeeze"}
    | {"split_with_sizes", "swapaxes", "t", "to", "transpose", "unbind", "unflatten", "unsqueeze"}
    | {"_to_copy", "_unsafe_view", "_assert_tensor_metadata", "chunk", "copy", "index", "view"}
    | {"lift_fresh_copy", "unfold", "T", "mT", "dropout"}
)


@dataclass(frozen=True, slots=True)
class ModuleScope:
    path: str
    kind: str  # the full name of the module's class, such as ``torch.nn.modules.conv.Conv2d``
    call: str = ""  # differs between the calls of the module, as far as the graph shows it
    index: int | None = None  # which call of the module it is; None if the graph does not say it


@dataclass(frozen=True, slots=True)
class GraphNode:
    # the modules inside which the node was made, outermost first, without the model
    scopes: tuple[ModuleScope, ...]
    operation: str  # the name of the torch function that the node computes, or is a part of
    step: str  # a text that all nodes of one call of that function have in common
    outputs: tuple[str, ...]  # the names of the values that the node computes
    weights: tuple[tuple[str, int], ...] = ()  # names, and numbers of values
    family: str = ""  # of what the node computes, such as ``conv``
    # which call of the function in its module; None if the graph does not say it and lacks no calls
    call_index: int | None = None
    inputs: tuple[str, ...] = ()  # the names of the values that the node reads
    owner: ModuleScope | None = None  # the layer whose weights a node of a tool uses, if known
    is_told: bool = True  # whether the node says where it was made. Nodes that a tool added do not.
    left_out: str = ""  # why hookcli shows no value of the node; empty if it shows one

    def within(self, prefix: str) -> GraphNode:
        return replace(
            self,
            scopes=tuple(replace(scope, index=None) for scope in self.scopes),
            step=f"{prefix}{self.step}",
            outputs=tuple(f"{prefix}{name}" for name in self.outputs),
            inputs=tuple(f"{prefix}{name}" for name in self.inputs),
        )

    def without_wrappers(self) -> GraphNode:
        inner = (each for each in self.scopes if not each.kind.endswith(f".{WRAPPER}"))
        scopes = (replace(each, path=strip_wrapped(each.path)) for each in inner)
        return replace(self, scopes=tuple(scope for scope in scopes if scope.path))


@dataclass(frozen=True, slots=True)
class GraphCall:
    layer: LayerInfo
    call_index: int
    values: tuple[str, ...]  # the names of the values that the call returns
    start: int  # the position of the call's first node in the graph
    families: tuple[str, ...] = ()  # two of a BatchNorm into which a convolution was merged
    nodes: int = 1  # how many nodes belong to this call, and to no call inside it
    is_told: bool = True  # whether the graph names the layer; it does not name what a tool added
    is_counted: bool = False  # whether ``call_index`` ignores calls that the file may lack

    def outputs(self, order: int) -> Iterator[tuple[Call, str]]:
        for number, value in enumerate(self.values):
            key = str(number) if len(self.values) > 1 else ""
            yield Call(self.layer, self.call_index, order, output_key=key), value


@dataclass(frozen=True, slots=True)
class Graph:
    calls: Sequence[GraphCall]  # in the order in which they end
    root: LayerInfo  # the model itself
    names_modules: bool  # if False, every node is a call of a layer of its own
    left_out: Sequence[tuple[str, str]] = ()  # operations of nodes that are in no call, and reasons
    returned: frozenset[str] = frozenset()  # the names of the values that the graph returns
    reasons: Mapping[str, str] = field(default_factory=dict)  # why calls are left out, by call id
    nodes: Sequence[GraphNode] = ()
    is_inferred: bool = False  # whether hookcli inferred the calls from the names of the nodes

    @classmethod
    def of(
        cls,
        nodes: Iterable[GraphNode],
        returned: Iterable[str] = (),
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> Graph:
        listed = [node.without_wrappers() for node in nodes]
        weights = dict(weight for node in listed for weight in node.weights)
        root = LayerInfo("", "Model", depth=0, is_leaf=False, params=sum(weights.values()))
        left_out = [(node.operation, node.left_out) for node in listed if node.left_out]
        names_modules = any(node.scopes for node in listed if not node.left_out)
        returned = frozenset(returned)
        assigned = _assign_untold(listed, returned) if names_modules else listed
        shown = [node for node in assigned if not node.left_out]
        find = partial(_find_named, returned, left_out) if names_modules else _find_bare
        return cls(tuple(find(shown)), root, names_modules, left_out, returned, reasons, shown)

    @property
    def untold(self) -> frozenset[str]:
        return frozenset(call.layer.module_path for call in self.calls if not call.is_told)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(layer.module_path for layer in self.layers) - self.untold

    def list_calls(self, path: str) -> list[GraphCall]:
        return [call for call in self.calls if call.layer.module_path == path]

    def list_values(self, call: GraphCall) -> set[str]:
        first = self.nodes[call.start]
        scope = next((s for s in first.scopes if s.path == call.layer.module_path), None)
        if scope is None:  # an operation
            inside = [node for node in self.nodes if node.step == first.step]
        else:
            returning = [n for n, node in enumerate(self.nodes) if {*node.outputs} & {*call.values}]
            nodes = self.nodes[call.start : max(returning, default=call.start) + 1]
            inside = [node for node in nodes if scope in node.scopes]
        return {name for node in inside for name in node.outputs}

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        layers: dict[str, LayerInfo] = {}
        for call in self.calls:
            layers.setdefault(call.layer.module_path, call.layer)
        return (self.root, *layers.values())


@dataclass(slots=True)
class _Group:
    scope: ModuleScope
    depth: int
    indices: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)  # of the nodes that are in no call inside this one


def _find_named(
    returned: frozenset[str], left_out: list[tuple[str, str]], nodes: Sequence[GraphNode]
) -> Iterator[GraphCall]:
    # Operations that only return views or copies are not calls, nor are those in torch's modules.
    # For each node that belongs to no call, ``left_out`` gets the operation and a reason.
    users: dict[str, set[int]] = defaultdict(set, {name: {-1} for name in returned})
    for at, node in enumerate(nodes):
        for name in node.inputs:
            users[name].add(at)
    paths = {scope.path for node in nodes for scope in node.scopes}
    leaves = paths - {path.rpartition(".")[0] for path in paths}
    groups = _list_groups(nodes)
    innermost = {at: group for group in groups for at in group.indices}
    ended: dict[int, list[_Group]] = {group.indices[-1]: [] for group in groups}
    for group in reversed(groups):
        ended[group.indices[-1]].append(group)
    counts: Counter[str] = Counter()
    axes, params = _Axes(), _count_weights(nodes)
    layers: dict[str, LayerInfo] = {}
    parts = 0  # the earlier nodes of the function that a node computes

    def make(
        layer: LayerInfo, values: tuple[str, ...], families: Iterable[str], index: int | None
    ) -> GraphCall:
        path, families = layer.module_path, tuple(families)
        counts[path] = (counts[path] if index is None else index) + 1
        channels = axes.find(layer, values[-1:], families)
        layer = replace(layer, params=params.get(path, layer.params), channels=channels)
        layer = layers.setdefault(path, layer)
        return GraphCall(layer, counts[path] - 1, values, at, families)

    for at, node in enumerate(nodes):
        inside = node.scopes[-1] if node.scopes else ModuleScope("", "")
        is_last = at + 1 == len(nodes) or nodes[at + 1].step != node.step
        is_part = inside.path in leaves and inside.kind.startswith((_TORCH, ONNX))
        if is_part or (node.is_told and node.operation in _VIEWS):
            if node.scopes:
                innermost[at].own.append(at)
            else:
                left_out.append((node.operation, "only moves values"))
        elif not is_last:
            parts += 1
        else:
            layer = _untold_layer(inside.path, node)
            if node.is_told:
                path = operation_path(inside.path, node.operation)
                channels = channels_of_operation(node.operation)
                layer = LayerInfo(path, node.operation, layer.depth, channels=channels)
            family = family_of_operation(node.operation)
            call = make(layer, node.outputs, (family,), node.call_index)
            counted = node.call_index is None
            yield replace(call, nodes=parts + 1, is_told=node.is_told, is_counted=counted)
            parts = 0
        for group in ended.get(at, ()):
            python_module, _, name = group.scope.kind.rpartition(".")
            path, is_leaf = group.scope.path, group.scope.path in leaves
            of_operators = map(family_of_operation, name.split("+"))
            family = family_of_class(name, python_module) or next(filter(None, of_operators), "")
            families = {family: None}
            if is_leaf and "norm" in families:
                families |= {nodes[each].family: None for each in group.indices}
            after = {user for value in node.outputs for user in users[value] if user >= 0}
            if any(_has_merged(nodes[user], path) for user in after):
                reason = "the last layer of its module was merged into another module"
                left_out += [(nodes[each].operation, reason) for each in group.own]
                continue
            is_single = is_leaf and inside.kind.startswith(_TORCH) and "Attention" not in name
            values = () if is_single else tuple(_list_escaping(nodes, group.indices, users))
            layer = LayerInfo(path, name, path.count(".") + 1, is_leaf)
            call = make(layer, values or node.outputs, families, group.scope.index)
            counted = group.scope.index is None
            start, own = group.indices[0], len(group.own)
            yield replace(call, start=start, nodes=own, is_counted=counted)


def _has_merged(node: GraphNode, path: str) -> bool:
    own = {scope.path for scope in node.scopes}
    homes = {name.rpartition(".")[0] for name, _ in node.weights}
    is_merged = node.family in ("conv", "linear") and path not in own
    return is_merged and any(home.startswith(f"{path}.") for home in homes - own)


def _list_escaping(
    nodes: Sequence[GraphNode], indices: Sequence[int], users: Mapping[str, set[int]]
) -> Iterator[str]:
    inside = {*indices}
    if any(users[name] for name in nodes[indices[-1]].outputs):
        for index in indices:
            yield from (name for name in nodes[index].outputs if users[name] - inside)


def _list_groups(nodes: Sequence[GraphNode]) -> list[_Group]:
    # A group is a module's call; outer calls come first. If the graph does not number the calls,
    # only consecutive nodes belong to the same call.
    found: dict[object, _Group] = {}
    running: list[tuple[ModuleScope, int]] = []
    for index, node in enumerate(nodes):
        pairs = zip(running, node.scopes, strict=False)
        kept = len([*itertools.takewhile(lambda pair: pair[0][0] == pair[1], pairs)])
        running = [*running[:kept], *((scope, index) for scope in node.scopes[kept:])]
        for depth, (scope, start) in enumerate(running):
            key = (scope.path, start, None) if scope.index is None else (scope.path, scope.index)
            found.setdefault(key, _Group(scope, depth)).indices.append(index)
    return sorted(found.values(), key=lambda group: group.depth)


def _assign_untold(nodes: Sequence[GraphNode], returned: frozenset[str]) -> list[GraphNode]:
    # Nodes that a tool such as a quantizer added get a module, connected ones the same. If they use
    # the weights of exactly one layer, the module is this layer; otherwise, it is the innermost
    # module around all their neighbours.
    made = {name: index for index, node in enumerate(nodes) for name in node.outputs}
    links: dict[int, set[int]] = defaultdict(set)  # -1 is outside the graph
    for index, node in enumerate(nodes):
        outside = set() if returned.isdisjoint(node.outputs) else {-1}
        for other in outside.union(made.get(name, -1) for name in node.inputs):
            links[index].add(other)
            links[other].add(index)
    assigned, known = [*nodes], {scope.path: scope for node in nodes for scope in node.scopes}
    untold = (index for index, node in enumerate(nodes) if not node.is_told)
    waiting = {index for index in untold if not nodes[index].left_out}
    while waiting:
        together = [waiting.pop()]
        for index in together:  # the list grows in the loop
            together += links[index] & waiting
            waiting -= links[index]
        rim = set().union(*(links[index] for index in together)).difference(together)
        around = [nodes[index].scopes if index >= 0 else () for index in rim]
        levels = itertools.takewhile(lambda level: len({*level}) == 1, zip(*around, strict=False))
        scopes = tuple(level[0] for level in levels)
        owners = [owner for index in together if (owner := nodes[index].owner) is not None]
        if len(owners) == 1:
            parts = owners[0].path.split(".")
            outer = [".".join(parts[:count]) for count in range(1, len(parts))]
            own = known.get(owners[0].path, owners[0])
            scopes = (*(known.get(path, ModuleScope(path, "")) for path in outer), own)
        for index in together:
            assigned[index] = replace(nodes[index], scopes=scopes, is_told=len(owners) == 1)
    return assigned


def _untold_layer(module_path: str, node: GraphNode) -> LayerInfo:
    path = "/".join(filter(None, (module_path, node.step)))
    params = sum(dict(node.weights).values())
    return LayerInfo(path, node.operation, depth_of(module_path), params=params)


def _find_bare(nodes: Sequence[GraphNode]) -> Iterator[GraphCall]:
    axes = _Axes()
    for index, node in enumerate(nodes):
        family = family_of_operation(node.operation)
        layer = _untold_layer("", node)
        layer = replace(layer, channels=axes.find(layer, node.outputs, (family,)))
        yield GraphCall(layer, 0, node.outputs, index, (family,))


def _count_weights(nodes: Sequence[GraphNode]) -> Mapping[str, int]:
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for node in nodes:
        for scope in node.scopes:
            used[scope.path].update(node.weights)
    return {path: sum(weights.values()) for path, weights in used.items()}


class _Axes:
    # Finds the channel axis of each call, if the types of the layers show it. A module that returns
    # the value of an inner call has the axis of that call, an elementwise layer that of the layer
    # before it.

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
