"""What hookcli reads in an ONNX graph, with graphs of plain objects."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hookcli.passes.graph import ModuleScope
from hookcli.passes.onnx_file import _find_dependent, _find_dequantized, _Repeats

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
