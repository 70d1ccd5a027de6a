"""Pairing the calls of a model with those of a graph, with values written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hookcli.compare.seen_calls import SeenCalls
from hookcli.passes.graph import Graph, GraphNode, Scope
from hookcli.records.calls import Call, LayerInfo

ENCODER = Scope("encoder", "own.Encoder")
CONV = Scope("encoder.conv", "torch.nn.modules.conv.Conv2d")


def node(name, inputs, *scopes, **facts):
    return GraphNode(scopes, "add", name, (name,), inputs=(inputs,), **facts)


def pair(graph, a, b):
    """Show the calls of A and of B, each a layer, an index, a key and a value; return the pairs."""
    seen = SeenCalls(graph=graph)
    for calls, show in ((a, seen.keep), (b, seen.measure)):
        for order, (path, index, key, values) in enumerate(calls):
            layer = LayerInfo(path, "Conv2d")
            show(Call(layer, index, order, output_key=key), torch.tensor(values))
    return seen.partners


@pytest.fixture
def several():
    """An encoder of which two values are used."""
    nodes = [
        node("one", "x", ENCODER),
        node("two", "one", ENCODER),
        node("sum", "one"),
        node("s", "two"),
    ]
    return Graph.of(nodes)


def test_the_tensors_of_a_module_are_paired_by_their_values(several):
    """The model also returns its input, which the graph does not compute."""
    a = [("encoder", 0, key, value) for key, value in (("0", [1.0]), ("1", [5.0]), ("2", [9.0]))]
    b = [("encoder", 0, "0", [9.001]), ("encoder", 0, "1", [5.0])]
    assert pair(several, a, b) == {"encoder[0]": "encoder[2]", "encoder[1]": "encoder[1]"}


def test_a_wrong_tensor_is_paired_by_its_shape(several):
    a = [("encoder", 0, "0", [1.0]), ("encoder", 0, "1", [5.0, 5.0]), ("encoder", 0, "2", [9.0])]
    assert pair(several, a, [("encoder", 0, "0", [7.0, 7.0])]) == {"encoder[0]": "encoder[1]"}


def test_a_tensor_that_may_be_any_of_several_is_not_paired(several):
    a = [("encoder", 0, key, value) for key, value in (("0", [1.0]), ("1", [5.0]), ("2", [9.0]))]
    assert pair(several, a, [("encoder", 0, "0", [7.0])]) == {}


def test_the_only_tensor_of_a_module_is_the_last_of_the_graph(several):
    """Another module uses a value inside this one."""
    b = [("encoder", 0, "0", [3.0]), ("encoder", 0, "1", [7.0])]
    assert pair(several, [("encoder", 0, "", [5.0])], b) == {"encoder[1]": "encoder"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[2.0], [3.0]], {"encoder.conv": "encoder.conv#1", "encoder.conv#1": "encoder.conv#2"}),
        ([[1.0], [3.0]], {"encoder.conv": "encoder.conv", "encoder.conv#1": "encoder.conv#2"}),
        ([[8.0], [9.0]], {"encoder.conv": "encoder.conv#1", "encoder.conv#1": "encoder.conv#2"}),
    ],
)
def test_the_values_show_which_call_a_file_without_numbers_lacks(values, expected):
    """If they do not, it is the first: exporters fold what does not depend on the input."""
    nodes = [node("one", "x", CONV), node("between", "one"), node("two", "between", CONV)]
    a = [("encoder.conv", index, "", [index + 1.0]) for index in range(3)]
    b = [("encoder.conv", index, "", value) for index, value in enumerate(values)]
    assert pair(Graph.of(nodes), a, b) == expected


def test_calls_that_a_tool_sorted_anew_are_paired_by_their_values():
    nodes = [node("one", "x", CONV), node("between", "one"), node("two", "between", CONV)]
    a = [("encoder.conv", 0, "", [1.0]), ("encoder.conv", 1, "", [4.0])]
    b = [("encoder.conv", 0, "", [4.001]), ("encoder.conv", 1, "", [1.001])]
    crossed = {"encoder.conv": "encoder.conv#1", "encoder.conv#1": "encoder.conv"}
    assert pair(Graph.of(nodes), a, b) == crossed


@pytest.mark.parametrize(("number", "expected"), [(3, {"encoder.conv": "encoder.conv#2"}), (4, {})])
def test_numbers_in_names_tell_the_calls_unless_a_calls_more_often(number, expected):
    """The file lacks calls, and the one that it has is wrong."""
    nodes = [node("two", "x", replace(CONV, index=2))]
    a = [("encoder.conv", index, "", [index + 1.0]) for index in range(number)]
    graph = replace(Graph.of(nodes), is_inferred=True)
    pairs = pair(graph, a, [("encoder.conv", 2, "", [9.0])])
    assert pairs == {f"{each}#2": other for each, other in expected.items()}


@pytest.fixture
def tool():
    """A graph in which a tool computes a layer with two nodes."""
    nodes = [
        node("one", "x", ENCODER, replace(CONV, path="encoder.a")),
        node("scaled", "one", is_told=False),
        node("shifted", "scaled", is_told=False),
        node("two", "shifted", replace(CONV, path="last")),
    ]
    return Graph.of(nodes)


@pytest.mark.parametrize("value", [5.01, 7.0])
def test_the_last_node_of_a_tool_is_the_layer_that_it_replaces(tool, value):
    """By its value, or if that is wrong, as the last layer before the next pair."""
    a = [("encoder.a", 0, "", [1.0]), ("encoder.b", 0, "", [5.0]), ("last", 0, "", [6.0])]
    b = [
        ("encoder.a", 0, "", [1.0]),
        ("scaled", 0, "", [3.0]),
        ("shifted", 0, "", [value]),
        ("last", 0, "", [6.0]),
    ]
    pairs = {"encoder.a": "encoder.a", "shifted": "encoder.b", "last": "last"}
    assert pair(tool, a, b) == pairs


def test_b_runs_again_to_tell_calls_that_only_inherit_an_error():
    """By their types, ``n1`` and ``n2`` would be ``y`` and ``z``: B runs ``z`` first."""

    def keep(*calls):
        seen = SeenCalls()
        for name, value in calls:
            layer = LayerInfo(name, "Conv2d")
            seen.keep(Call(layer, 0, 1), torch.full((1, 2, 2, 2), float(value)))
        return seen

    def rerun(feed, observe):
        right = feed("n0") is not None and feed("n0").flat[0] == 1
        for name, value in (("n0", 7), ("n1", 9 if right else 50), ("n2", 5 if right else 70)):
            layer = LayerInfo(name, "Conv")
            observe(Call(layer, 0, 1), torch.full((1, 2, 2, 2), float(value)))

    calls = keep(("x", 1), ("y", 5), ("z", 9))
    calls.measure_by_order(keep(("n0", 7), ("n1", 50), ("n2", 70)), rerun)
    assert calls.partners == {"n0": "x", "n1": "z", "n2": "y"}
    assert calls.distances["z"].rel_l2 == pytest.approx(41 / 9)
