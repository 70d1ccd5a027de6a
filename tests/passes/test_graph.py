"""Which calls the nodes of a graph belong to, with nodes written by hand."""

from __future__ import annotations

from hookcli.passes.graph import GraphNode, Scope, find_calls
from hookcli.records.layouts import Channels

BLOCK = Scope("block", "own.Block")
CONV = Scope("block.conv", "torch.nn.modules.conv.Conv2d")
RELU = Scope("block.relu", "torch.nn.modules.activation.ReLU")
NORM = Scope("norm", "own.LayerNorm2d")


def node(name, *scopes, operation="add", step=None):
    return GraphNode(scopes, operation, step or name, (name,))


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
