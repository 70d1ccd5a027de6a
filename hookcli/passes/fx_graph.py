"""Read the nodes of a ``torch.fx`` graph with their modules, and replace nodes' values.

``torch.export`` and ``torch.compile`` record in a node's metadata (``nn_module_stack``) which
modules they were tracing when they made the node.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from hookcli.hooks.operations import name_aten, name_operation, name_spelling, operation_path
from hookcli.passes.graph import GraphNode, ModuleScope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_SELF = "L['self']"  # the name of the model in the graphs of torch.compile
_INDEX = re.compile(r"""(?:\._modules)?\[['"]?(\w+)['"]?\]""")  # a module in a container
_NUMBER = re.compile(r"[@#](\d{1,4})$")  # the end of the key of a second or later call
_LIKE = re.compile(r"new_.*|.*_like")  # functions that return a constant in the shape of a tensor
_COMPUTING = ("call_function", "call_method")


def list_nodes(
    module: fx.GraphModule, paths: Mapping[str, str] | None = None
) -> Iterator[GraphNode]:
    # ``paths`` has the path of each module by its Python ``id``. The graphs of torch.compile hold
    # this ``id``; their own paths are not those of the model after a graph break.
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for node in module.graph.nodes:
        if node.op not in _COMPUTING:
            continue
        stack = node.meta.get("nn_module_stack") or {}
        scopes = (
            _read_scope(str(key), path, kind, paths or {}) for key, (path, kind) in stack.items()
        )
        is_pick = node.target is operator.getitem
        outputs = () if is_pick else _list_outputs(node)
        reason = "picks a part of a value" if is_pick else "returns no tensor"
        inside = tuple(scope for scope in scopes if scope.path)
        read = [each for each in node.all_input_nodes if each.op != "get_attr"]
        used = [str(each.target) for each in node.all_input_nodes if each.op == "get_attr"]
        weights = tuple((name, parameters[name].numel()) for name in used if name in parameters)
        operation, step = find_function(node) or (_name(node), node.name)
        inputs, left_out = tuple(each.name for each in read), "" if outputs else reason
        yield GraphNode(inside, operation, step, outputs, weights, inputs=inputs, left_out=left_out)


def list_returned(graph: fx.Graph) -> list[str]:
    return [each.name for node in graph.find_nodes(op="output") for each in node.all_input_nodes]


def find_function(node: fx.Node) -> tuple[str, str] | None:
    """Return the name of the torch function that a node is a part of, and an id of the call.

    For example, ``("linear", "linear_3")``: all nodes of one call have the id ``linear_3``. The
    result is None if the graph names no function.
    """
    known = node.meta.get("torch_fn")
    if not (isinstance(known, tuple) and len(known) == 2):
        return None
    step, function = map(str, known)
    return name_spelling(function.rpartition(".")[2]), step


def name_calls(graph: fx.Graph, aliases: Mapping[str, str]) -> None:
    """Change the keys of each node's ``nn_module_stack`` to ``path#index``, such as ``conv1#0``.

    The index counts the calls of a module from 0. If a module has several paths, the keys use the
    first one, to which ``aliases`` maps the others.
    """
    known: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
    for node in graph.nodes:
        named = {}
        for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
            first = aliases.get(path, path)
            calls, number = known[first], _read_number(str(key))
            for each in range(number + 1):  # also calls without nodes
                calls.setdefault((path, each), len(calls))
            named[f"{first}#{calls[path, number]}"] = first, kind
        node.meta["nn_module_stack"] = named


def list_module_calls(node: fx.Node) -> list[str]:
    return [key for key, (path, _) in node.meta["nn_module_stack"].items() if path]


def explain_missing(graph: fx.Graph, inputs: Collection[str]) -> dict[str, str]:
    """Map the id of each call that exporters leave out of a graph to the reason.

    An example is ``{"pos": "it does not depend on the input"}``. ``inputs`` names the nodes that
    take the model's inputs. The caller must have run ``name_calls`` on the graph.
    """
    depends = {node for node in graph.nodes if node.name in inputs}
    functions = count_functions(graph)
    found: dict[str, bool] = {}  # whether any node of the call depends on the inputs
    for node in graph.nodes:
        if not (depends.isdisjoint(node.all_input_nodes) or _LIKE.match(_name(node))):
            depends.add(node)
        calls = list_module_calls(node)
        if node.name in functions:
            name, _, index = functions[node.name]
            path = calls[-1].rpartition("#")[0] if calls else ""
            calls.append(f"{operation_path(path, name)}#{index}")
        for call in calls:
            found[call] = found.get(call, False) or node in depends
    reasons = dict.fromkeys(
        (call for call, is_fed in found.items() if not is_fed), "it does not depend on the input"
    )
    for path, _, last in (call.rpartition("#") for call in found):
        earlier = {f"{path}#{index}" for index in range(int(last))}
        reasons |= dict.fromkeys(earlier - found.keys(), "the model does not use its result")
    return {call.removesuffix("#0"): reason for call, reason in reasons.items()}


def count_functions(graph: fx.Graph) -> dict[str, tuple[str, str, int]]:
    """Map the name of each node that is part of a torch function to the call of that function.

    A call is described by the function's name, an id of the call, and an index that counts, from 0,
    the calls of this function in the same module.
    """
    steps: dict[tuple[str, str], list[str]] = {}
    found = {}
    for node in graph.nodes:
        function = find_function(node)
        if function is not None:
            name, step = function
            stack = node.meta.get("nn_module_stack") or {}
            path = [*stack.values()][-1][0] if stack else ""
            calls = steps.setdefault((path, name), [])
            if step not in calls:
                calls.append(step)
            found[node.name] = (name, step, calls.index(step))
    return found


def _read_scope(key: str, path: str, kind: object, paths: Mapping[str, str]) -> ModuleScope:
    known = paths.get(key.partition("@")[0])
    called = _INDEX.sub(r".\1", path.removeprefix(_SELF)).removeprefix(".")
    name = f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)
    # torch.compile counts the calls of a module by the name under which the model calls it.
    return ModuleScope(
        called if known is None else known, name, f"{key} {called}", _read_number(key)
    )


def _read_number(key: str) -> int:
    found = _NUMBER.search(key)
    return int(found[1]) if found else 0


def _name(node: fx.Node) -> str:
    if isinstance(node.target, (str, torch._ops.OpOverload)):
        return name_aten(str(node.target))
    return name_operation(node.target)


def _list_outputs(node: fx.Node) -> tuple[str, ...]:
    picks = [user for user in node.users if user.target is operator.getitem]
    picks = [user for user in picks if user.users] or picks
    if not picks:
        traced = node.meta.get("val", node.meta.get("example_value"))
        return (node.name,) if isinstance(traced, Tensor) else ()
    chosen = sorted((user.args[1], user.name) for user in picks if isinstance(user.args[1], int))
    return tuple(dict(chosen).values())


def expose_values(
    module: fx.GraphModule, values: Sequence[str], fed: Collection[str]
) -> fx.GraphModule:
    """Return a copy of ``module`` that also returns copies of the tensors named in ``values``.

    For each name in ``fed``, the copy has an extra input, which replaces the tensor of that name.
    """
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    outputs = graph.graph_copy(module.graph, known)
    nodes = {old.name: new for old, new in known.items()}
    last = next((node for node in reversed(graph.nodes) if node.op == "placeholder"), None)
    given: dict[str, fx.Node] = {}
    for name in fed:
        with graph.inserting_after(last):
            given[name] = last = graph.placeholder(f"given_{name}")
    copies: dict[str, fx.Node] = {}
    for name in dict.fromkeys([*values, *fed]):
        node = nodes[name]
        with graph.inserting_after(node):
            copies[name] = graph.call_function(torch.clone, (node,))
        if name in given:
            for user in [*node.users]:
                if user is not copies[name]:
                    user.replace_input_with(node, given[name])
    flat = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    passed_on = {nodes[name]: node for name, node in given.items()}
    flat = tuple(passed_on.get(each, each) for each in flat)
    graph.output((*flat, *(copies[name] for name in values)))
    return fx.GraphModule(module, graph)
