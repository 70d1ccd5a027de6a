"""Which calls the nodes of a graph belong to, with nodes written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hookcli.passes.graph import Graph, GraphNode, ModuleScope
from hookcli.records.layouts import Channels

BLOCK = ModuleScope("block", "own.Block")
CONV = ModuleScope("block.conv", "torch.nn.modules.conv.Conv2d")
RELU = ModuleScope("block.relu", "torch.nn.modules.activation.ReLU")
NORM = ModuleScope("norm", "own.LayerNorm2d")


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


def test_operations_between_modules_are_calls_and_views_are_not():
    found = calls(
        node("one", BLOCK, CONV, operation="conv2d"),
        node("turned", BLOCK, operation="permute"),
        node("sum", BLOCK),
        node("more", operation="mul"),
    )
    assert [each[0] for each in found] == ["block.conv", "block/op:add", "block", "op:mul"]


def test_several_nodes_of_one_function_are_one_operation():
    found = calls(
        node("product", NORM, operation="linear", step="linear_3"),
        node("sum", NORM, operation="linear", step="linear_3"),
    )
    assert found == [("norm/op:linear", 0, "sum"), ("norm", 0, "sum")]


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
    linear = ModuleScope("fc", "torch.nn.modules.linear.Linear")
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


def test_a_module_returns_every_value_that_others_use():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        reading("two", "one", BLOCK, RELU),
        reading("three", "two", BLOCK, CONV),
        reading("sum", "one three"),
    ]
    values = {call.layer.module_path: call.values for call in find_calls(nodes)}
    assert values["block"] == ("one", "three")


def test_a_value_that_was_written_in_place_at_the_end_is_the_output():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        reading("overwritten", "one", BLOCK),
        reading("sum", "one"),
    ]
    values = {call.layer.module_path: call.values for call in find_calls(nodes)}
    assert values["block"] == ("overwritten",)


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
    assert (graph.root.depth, graph.root.is_leaf) == (0, False)


def paths_of(nodes, **facts):
    return [call.layer.module_path for call in Graph.of(nodes, **facts).calls]


def merged_into(*scopes):
    """A norm that a tool merged with ``block.conv``, after the ReLU of the block."""
    weights = (("block.conv.weight", 9),)
    last = reading("two", "one", *scopes, family="conv", weights=weights)
    return [reading("one", "x", BLOCK, RELU), last]


BATCH_NORM = ModuleScope("norm", "torch.nn.modules.batchnorm.BatchNorm2d")


def test_a_module_whose_last_layer_was_merged_into_a_norm_outside_has_no_value():
    assert paths_of(merged_into(BATCH_NORM)) == ["block.relu", "norm"]


def test_a_layer_that_the_model_calls_alone_hides_no_call_of_its_block():
    assert paths_of(merged_into(CONV)) == ["block.relu", "block", "block.conv"]


def owned(name, inputs, path, **facts):
    owner = ModuleScope(path, "onnx.ConvInteger", **facts)
    return replace(untold(name, inputs, "ConvInteger"), owner=owner)


def test_nodes_of_a_tool_are_in_the_layer_whose_weights_one_of_them_uses():
    nodes = [
        reading("one", "x", BLOCK, RELU),
        owned("inner", "one", "block.conv"),
        untold("scaled", "inner", "Mul"),
        reading("two", "scaled", BLOCK, RELU),
    ]
    assert ("block.conv", 0, "scaled") in calls(*nodes)


def test_nodes_of_a_tool_with_the_weights_of_two_layers_are_in_neither():
    nodes = [
        reading("one", "x", BLOCK, RELU),
        owned("left", "one", "block.conv"),
        owned("right", "left", "block.other"),
        reading("two", "right", BLOCK, CONV),
    ]
    assert {"block/left", "block/right"} < {*paths_of(nodes)}


def test_the_paths_of_a_graph_are_those_that_it_names():
    nodes = [
        reading("one", "x", BLOCK, CONV),
        untold("scaled", "one", "Mul"),
        reading("sum", "scaled"),
    ]
    graph = Graph.of(nodes)
    assert graph.paths == {"", "block", "block.conv", "op:add"}
    assert graph.untold == {"scaled"}


def test_the_values_of_a_call_are_those_of_all_its_nodes():
    first, second = (replace(BLOCK, index=index) for index in (0, 1))
    nodes = [
        reading("one", "x", first, CONV),
        reading("two", "one", second, CONV),
        reading("three", "one", first, RELU),
        reading("product", "three", operation="linear"),
        reading("sum", "product", operation="linear", step="product"),
    ]
    graph = Graph.of(nodes)
    assert graph.list_values(graph.list_calls("block")[1]) == {"one", "three"}
    assert graph.list_values(graph.list_calls("op:linear")[0]) == {"product", "sum"}


def test_the_calls_of_several_graphs_are_counted_together():
    """Each of them begins to count at 0, and names its values alike."""
    nodes = [reading("one", "x", replace(CONV, index=0)), reading("sum", "one")]
    both = [each.within(prefix) for prefix in ("a/", "b/") for each in nodes]
    assert [(each.inputs, each.step) for each in both[1::2]] == [
        (("a/one",), "a/sum"),
        (("b/one",), "b/sum"),
    ]
    assert calls(*both)[::2] == [("block.conv", 0, "a/one"), ("block.conv", 1, "b/one")]


def test_the_module_of_torch_compile_is_no_layer():
    compiled = ModuleScope("_orig_mod", "torch._dynamo.eval_frame.OptimizedModule")
    block = replace(BLOCK, path="_orig_mod.block")
    root = ModuleScope("_orig_mod", "own.Net")
    assert paths_of([node("one", compiled, root, block)]) == ["block/op:add", "block"]
    compiled, inner = replace(compiled, path="block"), replace(BLOCK, path="block._orig_mod")
    (_, call) = find_calls([node("one", compiled, inner)])
    assert (call.layer.module_path, call.layer.module_type) == ("block", "Block")


def test_every_operator_of_a_file_without_modules_is_a_layer():
    names = ("Relu", "Conv", "Relu", "LayerNormalization", "Reshape")
    found = find_calls([node(f"{name}_{n}", operation=name) for n, name in enumerate(names)])
    assert [(each.layer.label, each.families[0], each.layer.channels) for each in found] == [
        ("Relu_0", "act", Channels.SAME),
        ("Conv_1", "conv", Channels.FIRST),
        ("Relu_2", "act", Channels.LIKELY_FIRST),
        ("LayerNormalization_3", "norm", Channels.LAST),
        ("Reshape_4", "", Channels.UNKNOWN),
    ]


def test_a_norm_is_a_convolution_too_only_if_one_was_merged_into_it():
    merged = replace(node("one", BLOCK, BATCH_NORM, operation="batch_norm"), family="conv")
    assert find_calls([merged])[0].families == ("norm", "conv")
    around = ModuleScope("block", "own.LayerNormalization")
    nodes = [node("one", around, CONV, operation="conv2d"), node("two", around, RELU)]
    nodes[0] = replace(nodes[0], family="conv")
    assert find_calls(nodes)[-1].families == ("norm",)


@pytest.mark.parametrize(
    ("name", "values"), [("MultiheadAttention", ("one", "two")), ("Conv2d", ("two",))]
)
def test_of_the_layers_of_torch_only_attention_returns_several_values(name, values):
    layer = ModuleScope("layer", f"torch.nn.{name}")
    nodes = [reading("one", "x", layer), reading("two", "one", layer), reading("sum", "one two")]
    assert calls(*nodes)[0] == ("layer", 0, *values)


def test_a_view_that_a_tool_added_and_the_model_returns_is_a_layer_of_the_model():
    nodes = [reading("one", "x", BLOCK, CONV), untold("flat", "one", "view")]
    assert paths_of(nodes, returned=["flat"])[-1] == "flat"
