"""What hookcli reads in an ONNX graph, with graphs of plain objects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hookcli.passes.graph import Graph, GraphNode, ModuleScope
from hookcli.passes.onnx_file import OnnxRunner, _find_dependent, _find_dequantized, _Repeats

RELU = "torch.nn.modules.activation.ReLU"


def node(kind, inputs, output, *inner):
    attributes = [SimpleNamespace(g=SimpleNamespace(node=list(inner)))] if inner else []
    return SimpleNamespace(
        op_type=kind, input=inputs.split(), output=[output], attribute=attributes
    )


def graph(*nodes):
    return SimpleNamespace(node=nodes, input=[SimpleNamespace(name="x")], initializer=[])


def test_the_shape_of_an_input_does_not_depend_on_the_input():
    nodes = (node("Shape", "x", "shape"), node("Cast", "shape", "sides"), node("Relu", "x", "y"))
    assert _find_dependent(graph(*nodes)) == {"x", "y"}


def test_a_branch_that_reads_an_input_depends_on_it():
    assert _find_dependent(graph(node("If", "flag", "y", node("Relu", "x", "inner")))) == {"x", "y"}


@pytest.mark.parametrize(("users", "found"), [(1, {"y": "z"}), (2, {})])
def test_a_quantized_value_that_two_nodes_read_keeps_its_own_name(users, found):
    readers = [node("DequantizeLinear", "q", name) for name in ("z", "other")[:users]]
    assert _find_dequantized(graph(node("QuantizeLinear", "y", "q"), *readers)) == found


@pytest.mark.parametrize(
    ("steps", "calls"),
    [
        ([("relu", "1"), ("relu", "2")], ["0", "1"]),
        ([("relu", "1"), ("relu", "1")], ["0", "0"]),
        ([("mul", "1"), ("relu", "2")], ["0", "0"]),
    ],
)
def test_an_operator_that_appears_again_in_a_layer_is_the_next_call(steps, calls):
    repeats, scope = _Repeats(), ModuleScope("act", RELU)
    assert [next(repeats.mark([scope], *each)).call for each in steps] == calls


def told(path, operation, output, weights="", family=""):
    """Return a node of hookcli's graph, which says that a module made it; "" is the model."""
    parts = path.split(".") if path else []
    paths = [".".join(parts[: count + 1]) for count in range(len(parts))]
    scopes = tuple(ModuleScope(each, "nets.Block") for each in paths)
    sizes = tuple((name, 8) for name in weights.split())
    return GraphNode(scopes, operation, output, (output,), sizes, family)


NODES = [  # the name in the file, the node in the file, and the node in hookcli's graph
    ("one", node("Conv", "x", "a"), told("norm", "batch_norm", "a", "stem.weight", "conv")),
    ("two", node("Conv", "a", "b"), told("body.one", "conv2d", "b", "body.one.weight", "conv")),
    ("", node("Relu", "b", "c"), told("body", "relu", "c", "", "act")),
    ("move", node("Reshape", "c", "d"), told("body", "view", "d")),
    ("shape", node("Shape", "c", "s"), told("body", "size", "s")),
    ("three", node("MatMul", "d", "e"), told("fc", "linear", "e", "fc.weight", "linear")),
    ("four", node("Add", "e", "f"), told("fc", "linear", "f", "body.one.bias")),
    ("five", node("Gemm", "f", "y"), told("", "Gemm", "y", "head.weight fc.bias", "linear")),
    ("six", node("Add", "f", "z"), told("", "Add", "z", "head.bias")),
    ("seven", node("Conv", "z", "u"), told("twin", "conv2d", "u", "body.one.weight", "conv")),
]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("stem", ("one",)),
        ("norm", ("one",)),
        ("body.one", ("two",)),
        ("body", ("two", "")),
        ("fc", ("three", "four")),
        ("head", ("five",)),
        ("twin", ("seven",)),
        ("hea", ()),
        ("bod", ()),
        ("other", ()),
    ],
)
def test_the_nodes_of_a_module_are_those_made_in_it_or_with_its_weight(path, names):
    """A file has one tensor for equal ones of several layers, and some nodes have no names."""
    for name, each, _ in NODES:
        each.name = name
    model = SimpleNamespace(graph=graph(*(each for _, each, _ in NODES)))
    calls = Graph.of([each for *_, each in NODES])
    runner = OnnxRunner(calls, lambda pixels: (pixels,), Path("net.onnx"), _model=model)
    assert runner.name_nodes_of(path) == names
