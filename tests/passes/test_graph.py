"""Which calls the nodes of a graph belong to, with nodes written by hand."""

from __future__ import annotations

from dataclasses import replace

from hookcli.passes.graph import Graph, GraphNode, Scope
from hookcli.records.layouts import Channels

BLOCK = Scope("block", "own.Block")
CONV = Scope("block.conv", "torch.nn.modules.conv.Conv2d")
RELU = Scope("block.relu", "torch.nn.modules.activation.ReLU")
NORM = Scope("norm", "own.LayerNorm2d")


def find_calls(nodes):
    return Graph.of(nodes).calls


def node(name, *scopes, operation="add", step=None):
    return GraphNode(scopes, operation, step or name, (name,))


def reading(name, inputs, *scopes, **facts):
    """A node that says what it reads."""
    return replace(node(name, *scopes), inputs=tuple(inputs.split()), **facts)


def calls(*nodes):
    return [
        (call.layer.module_path, call.call_index, *call.values) for call in find_calls([*nodes])
    ]


def test_a_call_returns_the_value_of_its_last_node():
    found = calls(
        node("product", BLOCK, CONV, operation="conv2d"),
        node("sum", BLOCK, CONV),
        node("rectified", BLOCK, RELU, operation="relu"),
    )
    assert found == [
        ("block.conv", 0, "sum"),
        ("block.relu", 0, "rectified"),
        ("block", 0, "rectified"),
    ]


def test_calls_of_one_module_are_counted():
    found = calls(node("one", BLOCK, RELU), node("two", BLOCK, CONV), node("three", BLOCK, RELU))
    assert [(path, index) for path, index, _ in found] == [
        ("block.relu", 0),
        ("block.conv", 0),
        ("block.relu", 1),
        ("block", 0),
    ]


def test_two_calls_in_a_row_are_told_apart_if_the_graph_shows_it():
    again = Scope("block.relu", RELU.kind, "relu@1")
    found = calls(node("one", BLOCK, RELU), node("two", BLOCK, again))
    assert found[:2] == [("block.relu", 0, "one"), ("block.relu", 1, "two")]


def test_operations_between_modules_are_calls_and_views_are_not():
    found = calls(
        node("one", BLOCK, CONV, operation="conv2d"),
        node("turned", BLOCK, operation="permute"),
        node("sum", BLOCK),
        node("more", operation="mul"),
    )
    assert [each[0] for each in found] == ["block.conv", "block/op:add", "block", "op:mul"]


def test_only_operations_of_a_layer_of_torch_are_part_of_it():
    found = calls(
        node("one", BLOCK, CONV, operation="conv2d"), node("two", NORM, operation="layer_norm")
    )
    assert [each[0] for each in found] == ["block.conv", "block", "norm/op:layer_norm", "norm"]


def test_several_nodes_of_one_function_are_one_operation():
    found = calls(
        node("product", NORM, operation="linear", step="linear_3"),
        node("sum", NORM, operation="linear", step="linear_3"),
    )
    assert found == [("norm/op:linear", 0, "sum"), ("norm", 0, "sum")]


def test_nodes_that_name_no_module_are_layers_of_their_own():
    found = find_calls([node("Conv_0", operation="Conv"), node("Relu_1", operation="Relu")])
    assert [(each.layer.module_path, each.layer.module_type) for each in found] == [
        ("Conv_0", "Conv"),
        ("Relu_1", "Relu"),
    ]


def test_a_norm_that_a_convolution_was_merged_into_is_of_both_families():
    norm = Scope("block.norm", "torch.nn.modules.batchnorm.BatchNorm2d")
    merged = GraphNode((BLOCK, norm), "batch_norm", "one", ("one",), family="conv")
    (call, _) = find_calls([merged])
    assert (call.layer.module_type, call.families) == ("BatchNorm2d", ("norm", "conv"))


def test_a_call_starts_at_its_first_node():
    found = find_calls([node("one", BLOCK, CONV), node("two", BLOCK, CONV), node("three", BLOCK)])
    assert {call.layer.module_path: call.start for call in found} == {
        "block.conv": 0,
        "block/op:add": 2,
        "block": 0,
    }


def test_the_weights_of_a_block_are_those_of_its_layers_counted_once():
    weights = (("weight", 6), ("bias", 2))
    nodes = [
        GraphNode((BLOCK, CONV), "conv2d", "one", ("one",), weights),
        GraphNode((BLOCK, RELU), "relu", "two", ("two",)),
        GraphNode((BLOCK, CONV), "conv2d", "three", ("three",), weights),
    ]
    params = {call.layer.module_path: call.layer.params for call in find_calls(nodes)}
    assert params == {"block.conv": 8, "block.relu": 0, "block": 8}


def test_the_channel_axis_follows_from_the_types_of_the_layers():
    linear = Scope("fc", "torch.nn.modules.linear.Linear")
    found = find_calls(
        [
            node("seen", BLOCK, CONV, operation="conv2d"),
            node("rectified", BLOCK, RELU, operation="relu"),
            node("flat", linear, operation="linear"),
            node("sum"),
        ]
    )
    assert {call.layer.module_path: call.layer.channels for call in found} == {
        "block.conv": Channels.FIRST,
        "block.relu": Channels.LIKELY_FIRST,
        "block": Channels.LIKELY_FIRST,
        "fc": Channels.LAST,
        "op:add": Channels.LIKELY_LAST,
    }


def test_the_operators_of_a_file_without_modules_have_families():
    names = ("Conv", "Relu", "MaxPool", "Gemm", "LayerNormalization", "Reshape")
    found = find_calls([node(name, operation=name) for name in names])
    families = [call.families for call in found]
    assert families == [("conv",), ("act",), ("pool",), ("linear",), ("norm",), ("",)]


def test_a_call_has_the_number_that_the_graph_says():
    """An exporter folded the first call."""
    second, third = (replace(CONV, index=index) for index in (1, 2))
    found = calls(node("one", BLOCK, second), node("two", BLOCK, third))
    assert found[:2] == [("block.conv", 1, "one"), ("block.conv", 2, "two")]


def test_the_nodes_of_a_numbered_call_may_be_apart():
    first, second = (replace(CONV, index=index) for index in (0, 1))
    found = calls(node("one", first), node("two", second), node("three", first))
    assert found == [("block.conv", 1, "two"), ("block.conv", 0, "three")]


def test_a_module_returns_every_value_that_others_use():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        reading("two", "one", BLOCK, RELU),
        reading("three", "two", BLOCK, CONV),
        reading("sum", "one three"),
    ]
    values = {call.layer.module_path: call.values for call in find_calls(nodes)}
    assert values["block"] == ("one", "three")


def test_a_module_returns_what_the_model_returns():
    nodes = [reading("one", "x", BLOCK, CONV), reading("two", "one", BLOCK, RELU)]
    graph = Graph.of(nodes, returned=["one", "two"])
    assert graph.list_calls("block")[0].values == ("one", "two")


def test_a_value_that_was_written_in_place_at_the_end_is_the_output():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        reading("overwritten", "one", BLOCK),
        reading("sum", "one"),
    ]
    values = {call.layer.module_path: call.values for call in find_calls(nodes)}
    assert values["block"] == ("overwritten",)


def test_a_module_whose_last_layer_was_merged_into_a_norm_outside_has_no_value():
    norm = Scope("norm", "torch.nn.modules.batchnorm.BatchNorm2d")
    merged = reading("two", "one", norm, family="conv", weights=(("block.conv.weight", 9),))
    found = find_calls([reading("one", "x", BLOCK, RELU), merged])
    assert [call.layer.module_path for call in found] == ["block.relu", "norm"]


def test_a_module_that_is_called_again_keeps_its_value():
    """The second call reads the output of the first, with weights of the same module."""
    weights = (("block.conv.weight", 9),)
    nodes = [
        reading(name, inputs, replace(BLOCK, index=n), replace(CONV, index=n), weights=weights)
        for n, (name, inputs) in enumerate([("one", "x"), ("two", "one")])
    ]
    nodes = [replace(each, family="conv") for each in nodes]
    assert [call.layer.module_path for call in find_calls(nodes)].count("block") == 2


def untold(name, inputs, operation):
    return reading(name, inputs, operation=operation, is_told=False)


def test_a_node_of_a_tool_stands_under_its_own_name_in_the_module_around_it():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        untold("inner", "one", "ConvInteger"),
        untold("scaled", "inner", "Mul"),
        reading("two", "scaled", BLOCK, RELU),
        untold("outer", "two", "Conv"),
        reading("sum", "outer"),
    ]
    found = find_calls(nodes)
    assert [each.layer.module_path for each in found if not each.is_told] == [
        "block/inner",
        "block/scaled",
        "outer",
    ]
    assert next(each for each in found if each.layer.label == "outer").families == ("conv",)


def test_a_node_of_a_tool_between_the_nodes_of_a_layer_is_a_part_of_it():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        untold("cast", "one", "Cast"),
        reading("two", "cast", BLOCK, CONV),
    ]
    assert [(each.layer.module_path, each.nodes) for each in find_calls(nodes)] == [
        ("block.conv", 3),
        ("block", 0),
    ]


def test_every_node_is_in_one_call_or_left_out_with_a_reason():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        reading("turned", "one", BLOCK, operation="permute"),
        reading("sum", "turned"),
        reading("flat", "sum", operation="flatten"),
        untold("shape", "", "Constant"),
        reading("two", "flat", RELU),
    ]
    nodes[4] = replace(nodes[4], left_out="does not depend on the input")
    graph = Graph.of(nodes)
    assert {call.layer.label: call.nodes for call in graph.calls} == {
        "block.conv": 1,
        "block": 1,
        "op:add": 1,
        "block.relu": 1,
    }
    assert graph.left_out == [
        ("Constant", "does not depend on the input"),
        ("flatten", "only moves values"),
    ]
