"""Pairing the calls of a model with those of a graph, with values written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hookcli.comparison.seen_calls import SeenCalls
from hookcli.passes.graph import Graph, GraphNode, ModuleScope
from hookcli.records.calls import FOLDED, Call, LayerInfo

ENCODER = ModuleScope("encoder", "own.Encoder")
CONV = ModuleScope("encoder.conv", "torch.nn.modules.conv.Conv2d")


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


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        # the model also returns its input, which the graph does not compute
        ([[9.001], [5.0]], {"encoder[0]": "encoder[2]", "encoder[1]": "encoder[1]"}),
        ([[7.0, 7.0]], {"encoder[0]": "encoder[3]"}),  # wrong, but of this shape
        ([[7.0]], {}),  # may be any of several
    ],
)
def test_the_tensors_of_a_module_are_paired_by_their_values_and_shapes(several, b, expected):
    a = [("encoder", 0, str(n), value) for n, value in enumerate(([1.0], [5.0], [9.0], [5.0, 5.0]))]
    assert (
        pair(several, a, [("encoder", 0, str(n), value) for n, value in enumerate(b)]) == expected
    )


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
        ([[3.001], [1.0]], {"encoder.conv": "encoder.conv#2", "encoder.conv#1": "encoder.conv"}),
    ],
)
def test_the_values_show_which_call_a_file_without_numbers_lacks(values, expected):
    """If they do not, it is the first: exporters fold what does not depend on the input."""
    nodes = [node("one", "x", CONV), node("between", "one"), node("two", "between", CONV)]
    a = [("encoder.conv", index, "", [index + 1.0]) for index in range(3)]
    b = [("encoder.conv", index, "", value) for index, value in enumerate(values)]
    assert pair(Graph.of(nodes), a, b) == expected


@pytest.mark.parametrize(("number", "expected"), [(3, {"encoder.conv": "encoder.conv#2"}), (4, {})])
def test_numbers_in_names_tell_the_calls_unless_a_calls_more_often(number, expected):
    """The file lacks calls, and the one that it has is wrong."""
    nodes = [node("two", "x", replace(CONV, index=2))]
    a = [("encoder.conv", index, "", [index + 1.0]) for index in range(number)]
    graph = replace(Graph.of(nodes), is_inferred=True)
    pairs = pair(graph, a, [("encoder.conv", 2, "", [9.0])])
    assert pairs == {f"{each}#2": other for each, other in expected.items()}


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


def observe(show, *calls):
    """Show calls, each the path and the type of a layer, and its output."""
    for order, (path, kind, values) in enumerate(calls):
        show(Call(LayerInfo(path, kind), 0, order), torch.as_tensor(values))


def graph_of(*paths, **facts):
    """A graph in which each node is a layer."""
    nodes = [node(path, "x", ModuleScope(path, "torch.nn.modules.conv.Conv2d")) for path in paths]
    return replace(Graph.of(nodes), **facts)


def partners(graph, a, b):
    seen = SeenCalls(graph=graph)
    observe(seen.keep, *a)
    observe(seen.measure, *b)
    return seen.partners


def test_a_gate_without_positive_values_is_saturated_and_a_block_passes_this_on():
    seen = SeenCalls()
    observe(
        seen.keep,
        *(("any", "SiLU", [-1e-9, 2.0]), ("act", "SiLU", [-1e-9]), ("block", "Own", [-1e-9])),
        *(("net", "Own", [-1e-9]), ("conv", "Conv2d", [-1.0])),
    )
    found = [(each.tensor.operator, each.tensor.is_saturated) for each in seen.a.values()]
    assert found == [("", False), ("", True), ("SiLU", True), ("SiLU", True), ("", False)]


@pytest.mark.parametrize(
    ("relu", "before", "after", "expected"),
    [
        ("ReLU", [-1.0, 2.0], [0.0, 2.0], "relu"),
        ("Sigmoid", [-1.0, 2.0], [0.0, 2.0], "conv"),
        ("ReLU", [-1.0, 2.0], [-1.0, 2.0], "conv"),
        ("ReLU", [1.0, 2.0], [1.0, 2.0], "conv"),
    ],
)
def test_a_convolution_without_negative_values_is_the_relu_that_b_merged(
    relu, before, after, expected
):
    a = ("conv", "Conv2d", before), ("relu", relu, [0.0, 2.0])
    assert partners(graph_of("conv"), a, [("conv", "Conv", after)]) == {"conv": expected}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[5.0], [1.0]], {"op:add": "op:add#1", "op:add#1": "op:add"}),
        ([[5.0], [5.0]], {"op:add": "op:add#1"}),
        ([[7.0], [5.0]], {"op:add": "op:add", "op:add#1": "op:add#1"}),
    ],
)
def test_the_calls_of_an_operation_are_paired_by_their_values(values, expected):
    """An export may compute them in another order; a wrong one is the call of its number."""
    nodes = [node("one", "x", call_index=0), node("two", "one", call_index=1)]
    a = [("op:add", index, "", [value]) for index, value in enumerate((1.0, 5.0))]
    b = [("op:add", index, "", value) for index, value in enumerate(values)]
    assert pair(Graph.of(nodes), a, b) == expected


def by_order(*values):
    """Pair B's two calls with A's, whose values are 1 and 5; return the pairs and the reruns."""
    a, b, reruns = SeenCalls(), SeenCalls(), []
    observe(a.keep, ("x", "Own", [1.0]), ("y", "Own", [5.0]))
    calls = [(f"n{n}", "Own", [value]) for n, value in enumerate(values)]
    observe(b.keep, *calls)

    def rerun(_feed, show):
        reruns.append(1)
        observe(show, *calls)

    a.measure_by_order(b, rerun)
    return a.partners, len(reruns)


@pytest.mark.parametrize(("values", "reruns"), [((1.0, 5.0), 0), ((1.0, 50.0), 1)])
def test_b_runs_again_only_while_that_changes_pairs_that_differ(values, reruns):
    assert by_order(*values) == ({"n0": "x", "n1": "y"}, reruns)


def test_the_models_themselves_are_counterparts_if_calls_are_paired_by_order():
    a, b = SeenCalls(), SeenCalls()
    observe(a.keep, ("x", "Own", [1.0]), ("", "Net", [2.0]))
    observe(b.keep, ("n", "Own", [1.0]), ("", "Model", [70.0]))
    a.measure_by_order(b)
    assert a.partners == {"n": "x", "(model)": "(model)"}


@pytest.mark.parametrize(
    ("graph", "values", "is_measured"),
    [
        (None, [[1.0, 2.0], [4.0, 8.0]], False),
        (graph_of("x"), [[1.0, 2.0], [4.0, 8.0]], True),
        (graph_of("x"), [[8.0, 4.0], [2.0, 1.0]], False),
    ],
)
def test_only_an_export_may_change_a_shape_and_no_value(graph, values, is_measured):
    seen = SeenCalls(graph=graph)
    observe(seen.keep, ("x", "Own", [[1.0, 2.0, 4.0, 8.0]]))
    observe(seen.measure, ("x", "Own", values))
    assert ("x" in seen.distances) is is_measured


@pytest.mark.parametrize("keeps", [True, False])
def test_copies_are_kept_only_if_they_are_needed(keeps):
    seen = SeenCalls(keeps_values=keeps)
    for show in (seen.keep, seen.measure):
        observe(show, ("x", "Own", [1.0]))
    assert ("x" in seen.values) is keeps


def test_a_call_after_one_in_float16_is_as_coarse():
    seen = SeenCalls()
    half = torch.ones(1, dtype=torch.float16)
    observe(seen.keep, ("one", "Own", [1.0]), ("two", "Own", half), ("three", "Own", [1.0]))
    found = [each.tensor.coarsest for each in seen.a.values()]
    assert found == ["float32", "float16", "float16"]


def test_the_outputs_of_a_model_are_paired_in_their_order_even_if_they_are_wrong():
    nodes = [node("one", "x", ENCODER), node("two", "one", ENCODER)]
    graph = Graph.of(nodes, returned=["one", "two"])
    a = [("", 0, key, value) for key, value in (("0", [1.0]), ("1", [5.0]))]
    b = [("", 0, key, value) for key, value in (("0", [5.0]), ("1", [70.0]))]
    assert pair(graph, a, b) == {"(model)[0]": "(model)[0]", "(model)[1]": "(model)[1]"}


def with_tool(scaled, *more):
    """A tool's node between ``encoder.a`` and ``last``; ``more`` are A's calls between them."""
    nodes = [
        node("one", "x", ENCODER, replace(CONV, path="encoder.a")),
        node("scaled", "one", is_told=False),
        node("two", "scaled", replace(CONV, path="last")),
    ]
    a = [("early", "Conv2d", [7.0]), ("encoder.a", "Conv2d", [1.0]), *more]
    a = [*a, ("last", "Conv2d", [6.0])]
    b = [("encoder.a", "Conv2d", [1.0]), ("scaled", "Mul", scaled), ("last", "Conv2d", [6.0])]
    found = partners(Graph.of(nodes), a, b)
    assert (found.pop("encoder.a"), found.pop("last")) == ("encoder.a", "last")
    return found


B, DROP = ("b", "Conv2d", [5.0]), ("drop", "Dropout", [5.0])


@pytest.mark.parametrize(
    ("scaled", "more", "expected"),
    [
        ([5.0], [B], {"scaled": "b"}),
        ([70.0], [B], {"scaled": "b"}),  # wrong, but before the next pair
        ([70.0], [B, DROP], {"scaled": "b"}),
        ([7.0], [], {}),  # the value of a layer before the last pair
        ([5.0], [B, ("norm", "BatchNorm2d", [5.001])], {"scaled": "norm"}),
        ([70.0, 70.0], [B], {}),
        ([70], [B], {}),  # whole numbers
    ],
)
def test_the_last_node_of_a_tool_is_the_layer_that_it_replaces(scaled, more, expected):
    assert with_tool(scaled, *more) == expected


def test_a_node_of_a_tool_is_no_layer_that_b_names():
    nodes = [
        node("one", "x", replace(CONV, path="a")),
        node("scaled", "one", is_told=False),
        node("two", "scaled", replace(CONV, path="b")),
        node("three", "two", replace(CONV, path="c")),
    ]
    a = [("a", "Conv2d", [1.0]), ("b", "Conv2d", [5.0]), ("c", "Conv2d", [9.0])]
    b = [("a", "Conv2d", [1.0]), ("scaled", "Mul", [5.0]), ("b", "Conv2d", [5.0])]
    assert partners(Graph.of(nodes), a, b) == {"a": "a", "b": "b"}


def test_a_convolution_that_lost_its_norm_is_paired_with_the_norm():
    layers = ("conv", "Conv2d", [1.0]), ("norm", "BatchNorm2d", [5.0]), ("act", "Own", [9.0])
    folded = ("conv", FOLDED, [5.0]), ("act", "Own", [9.0])
    assert partners(graph_of("conv", "act"), layers, folded) == {"conv": "norm", "act": "act"}
    assert partners(graph_of("conv", "norm", "act"), folded, layers) == {
        "norm": "conv",
        "act": "act",
    }
    layers = ("conv", "Conv2d", [1.0]), ("act", "Own", [9.0])
    assert partners(graph_of("conv", "act"), layers, folded) == {"act": "act"}


def test_calls_whose_number_only_names_say_are_paired_by_their_values():
    """The names tell fewer calls apart than A has."""
    seen = SeenCalls(graph=graph_of("conv", is_inferred=True))
    for index, value in enumerate((1.0, 5.0)):
        layer = LayerInfo("conv", "Conv2d")
        seen.keep(Call(layer, index, index), torch.tensor([value]))
    observe(seen.measure, ("conv", "Conv", [5.0]))
    assert seen.partners == {"conv": "conv#1"}
    assert set(seen.untold) == {"conv", "conv#1"}


def test_calls_that_names_tell_apart_are_paired_by_their_numbers():
    seen = SeenCalls(graph=graph_of("conv", is_inferred=True))
    observe(seen.keep, ("conv", "Conv2d", [1.0]))
    observe(seen.measure, ("conv", "Conv", [70.0]))
    assert (seen.partners, seen.untold) == ({"conv": "conv"}, {})
