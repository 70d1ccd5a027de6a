"""Find module paths in the names that torch's older ONNX exporter gives to nodes.

``torch.onnx.export(dynamo=False)``, the default before torch 2.9, writes no metadata. It names a
node after the modules that run and its operator: ``/blocks/blocks.1/up/Resize``. The name has only
the end of each module's path, starting at the last part that is not a number. Modules that are
never called, such as a ``ModuleDict``, are left out. In the second call of ``up``, the name has
``up_1`` instead. A value has the name of its node, and keeps it if another tool changes the node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hookcli.passes.graph import ONNX, ModuleScope
from hookcli.records.calls import FOLDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    _Names = tuple[str, ...]

_NAME = re.compile(r"((?:/[^/]+)*)/([A-Z][A-Za-z0-9]*?)(_\d+)?((_output_\d|_?quant).*)?")
_REPEATED = re.compile(r"_\d+$")
_OF_FOLDED = re.compile(r"onnx::Conv_\d")  # weights that the exporter computed
_MOST_OPERATORS = 4
# The functions of torch that operators with other names compute
_FUNCTIONS = (
    {"AveragePool": "avg_pool2d", "BatchNormalization": "batch_norm", "Cast": "to", "Clip": "clamp"}
    | {"Concat": "cat", "Conv": "conv2d", "ConvTranspose": "conv_transpose2d", "Gather": "select"}
    | {"Gemm": "linear", "GlobalAveragePool": "adaptive_avg_pool2d", "GridSample": "grid_sample"}
    | {"Identity": "alias", "LayerNormalization": "layer_norm", "LeakyRelu": "leaky_relu"}
    | {"LogSoftmax": "log_softmax", "MaxPool": "max_pool2d", "ReduceMax": "amax"}
    | {"ReduceMean": "mean", "ReduceSum": "sum", "Resize": "interpolate"}
)


@dataclass(frozen=True, slots=True)
class NamedValues:
    names: tuple[str, ...]  # the modules around the node, outermost first, as the file names them
    operator: str  # the operator of ONNX that the exporter wrote
    step: str  # a text that nodes share if a tool made them from one node
    outputs: tuple[str, ...]
    scopes: tuple[ModuleScope, ...] = ()

    @property
    def function(self) -> str:
        return _FUNCTIONS.get(self.operator, self.operator.lower())


def read_names(
    nodes: Sequence[Any], dependent: AbstractSet[str], classes: Mapping[str, str]
) -> list[list[NamedValues]]:
    """List the values of each node, with the modules that the names of the values show.

    ``dependent`` has the names of the values that depend on the inputs; other values are left out.
    If no name shows a module, the result is empty. ``classes`` maps known paths to class names.
    """
    every = [[*_read_values(node)] for node in nodes]
    kept = [[each for each in values if not dependent.isdisjoint(each.outputs)] for values in every]
    if not any(each.names for values in kept for each in values):
        return []
    _join_linear(nodes, kept, dependent)
    paths = _Paths(classes, {each.names for values in every for each in values})
    for node, values in zip(nodes, every, strict=True):
        for each in values:
            paths.learn(each.names, node.input)
    for node, values in zip(nodes, kept, strict=True):
        for each in values:
            paths.add(node, each)
    return [[replace(each, scopes=paths.find(each.names)) for each in values] for values in kept]


def _read_values(node: Any) -> Iterator[NamedValues]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name in filter(None, () if node.op_type.endswith("QuantizeLinear") else node.output):
        if found := _NAME.fullmatch(name) or _NAME.fullmatch(node.name):
            groups.setdefault((found[1], found[2], found[3] or ""), []).append(name)
    for (scope, operator, number), outputs in groups.items():
        step = f"{scope}/{operator}{number}"
        yield NamedValues(tuple(scope.split("/")[1:]), operator, step, tuple(outputs))


def _join_linear(
    nodes: Sequence[Any], found: list[list[NamedValues]], dependent: AbstractSet[str]
) -> None:
    # A MatMul and the Add of its bias become one ``Gemm`` in ``found``, the values of each node:
    # they are one linear layer.
    products: dict[str, int] = {}
    for index, node in enumerate(nodes):
        if [each.operator for each in found[index]] == ["MatMul"]:
            products |= dict.fromkeys(node.output, index)
        before = next((products[name] for name in node.input if name in products), None)
        is_bias = sum(name in dependent for name in node.input) == 1
        if before is not None and is_bias and [each.operator for each in found[index]] == ["Add"]:
            step = found[before][0].step
            for other in (before, index):
                found[other] = [replace(found[other][0], operator="Gemm", step=step)]


@dataclass(slots=True)
class _Paths:
    classes: Mapping[str, str]
    own: AbstractSet[_Names]  # the names of the modules that directly contain nodes
    _paths: dict[_Names, str] = field(default_factory=dict)
    # by path, for each call in running order: its names, its names without number, and the number
    _calls: dict[str, dict[_Names, tuple[_Names, int]]] = field(default_factory=dict)
    _operators: dict[str, dict[str, None]] = field(default_factory=dict)
    _inner: dict[str, set[str]] = field(default_factory=dict)

    def learn(self, names: _Names, weights: Iterable[str]) -> None:
        # Names of weights may show the full paths of a module and of those around it: the weight
        # ``blocks.1.up.weight`` shows that ``("blocks.1", "up")`` has the path ``blocks.1.up``.
        if not names:
            return
        ends = (names[-1], _REPEATED.sub("", names[-1]))
        for owner in (name.rpartition(".")[0] for name in weights):
            if any(f".{owner}".endswith(f".{end}") for end in ends):
                self._paths[names] = around = owner
                for count in range(len(names) - 1, 0, -1):
                    if around := _shorten(around, names[count - 1]):
                        self._paths.setdefault(names[:count], around)

    def add(self, node: Any, values: NamedValues) -> None:
        names = values.names
        if not names:
            return
        path = self._find_path(names, last=True)
        number, base = _REPEATED.search(names[-1]), _without_number(names)
        is_call = base not in self.own or self._find_path(base, last=True) == path
        is_call = is_call and not f".{path}".endswith(f".{names[-1]}")
        call = (base, int(number[0][1:])) if number and is_call else (names, 0)
        self._calls.setdefault(path, {})[names] = call
        operators = self._operators.setdefault(path, {})
        operators.setdefault(values.operator)
        has_bias = node.op_type != "Conv" or len(node.input) > 2
        if values.operator == "Conv" and has_bias and any(map(_OF_FOLDED.match, node.input)):
            operators[FOLDED] = None
        for count in range(1, len(names)):
            inner = path if count + 1 == len(names) else self._find_path(names[: count + 1])
            self._inner.setdefault(self._find_path(names[:count]), set()).add(inner)

    def find(self, names: _Names) -> tuple[ModuleScope, ...]:
        scopes: list[ModuleScope] = []
        path, call = "", 0
        for count in range(len(names), 0, -1):
            outer = self._find_path(names[:count])
            call = call * self._count(outer) // self._count(path) if path else self._index(names)
            path = outer
            index = call if path in self._inner or self._has_one_name(path) else None
            scopes.insert(0, ModuleScope(path, self._find_kind(path), str(call), index))
        return tuple(scopes)

    def _find_path(self, names: _Names, *, last: bool = False) -> str:
        if names not in self._paths:
            outer = self._find_path(names[:-1]) if names[:-1] else ""
            path = self._join(outer, names)
            base = _without_number(names)
            called = base != names and (base in self.own or self._join(outer, base) in self.classes)
            if last and path not in self.classes and called:
                path = self._find_path(base, last=True)
            self._paths[names] = path
        return self._paths[names]

    def _join(self, outer: str, names: _Names) -> str:
        name, around = names[-1], names[-2] if len(names) > 1 else ""
        if around and name.startswith(f"{around}."):
            return f"{outer}{name[len(around) :]}"
        path = f"{outer}.{name}" if outer else name
        start, end = f"{outer}." if outer else "", f".{name}"
        others = [each for each in self.classes if each.startswith(start) and each.endswith(end)]
        return others[0] if path not in self.classes and len(others) == 1 else path

    def _count(self, path: str) -> int:
        if path not in self._calls:
            return min(map(self._count, self._inner[path]))
        return 1 + max(map(self._index, self._calls[path]))

    def _index(self, names: _Names) -> int:
        path = self._paths[names]
        own = self._calls[path]
        return own[names][1] if self._has_one_name(path) else [*own].index(names)

    def _has_one_name(self, path: str) -> bool:
        bases = {base for base, _ in self._calls.get(path, {}).values()}
        others = {_without_number(base) for base in bases} - bases
        return len(bases) == 1 and others.isdisjoint(self.own)

    def _find_kind(self, path: str) -> str:
        operators = self._operators.get(path, {})
        if FOLDED in operators:
            return f"{ONNX}{FOLDED}"
        joined = "+".join(operators)
        is_known = path not in self._inner and len(operators) <= _MOST_OPERATORS
        return self.classes.get(path, f"{ONNX}{joined if is_known else 'Module'}")


def _without_number(names: _Names) -> _Names:
    return (*names[:-1], _REPEATED.sub("", names[-1]))


def _shorten(path: str, end: str) -> str:
    while path:
        path = path.rpartition(".")[0]
        if f".{path}".endswith(f".{end}"):
            return path
    return ""
