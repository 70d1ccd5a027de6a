from types import SimpleNamespace

import pytest

from hookcli.passes.node_names import read_names


def node(operator, name, inputs, *outputs):
    """Return a node as onnx describes it; ``inputs`` are names between spaces."""
    outputs = outputs or [f"{name}_output_0"]
    return SimpleNamespace(op_type=operator, name=name, input=inputs.split(), output=outputs)


def read_values(*nodes, modules=None):
    made = [node(*each) for each in nodes]
    names = {name for each in made for name in each.output}
    return read_names(made, names, modules or {})


def read(*nodes, modules=None):
    """Return the calls of modules around each node, as texts."""
    found = read_values(*nodes, modules=modules)
    return [
        [f"{scope.path}#{scope.call}" for scope in each.scopes]
        for values in found
        for each in values
    ]


def kinds(*nodes, modules=None):
    found = read_values(*nodes, modules=modules)
    scopes = [scope for values in found for each in values for scope in each.scopes]
    return {scope.path: scope.kind for scope in scopes}


def test_a_name_holds_the_modules_around_the_node():
    (scopes,) = read(("Resize", "/blocks/blocks.1/blocks.1.0/up/Resize", "x"))
    assert scopes == ["blocks#0", "blocks.1#0", "blocks.1.0#0", "blocks.1.0.up#0"]


@pytest.mark.parametrize(
    ("name", "weight", "path"),
    [
        ("Conv2d_1a_3x3/Conv", "", "Conv2d_1a_3x3.Conv"),
        ("conv/conv", "conv.conv.weight", "conv.conv"),
        ("block/blocks", "", "block.blocks"),
        ("block/conv", "preconv.weight", "block.conv"),
    ],
)
def test_names_that_are_alike_are_modules_of_their_own(name, weight, path):
    (scopes,) = read(("Conv", f"/{name}/Conv", f"x {weight}"))
    assert scopes == [f"{path.partition('.')[0]}#0", f"{path}#0"]


def test_names_without_modules_say_nothing():
    assert read(("Conv", "Conv_0", "x", "12"), ("Relu", "/Relu", "12")) == []


def test_a_number_at_the_end_counts_the_calls():
    scopes = read(("Relu", "/act/Relu", "x"), ("Relu", "/act_1/Relu", "x"))
    assert scopes == [["act#0"], ["act#1"]]


def test_a_number_at_the_end_is_part_of_a_name_that_the_weights_have():
    scopes = read(
        ("Conv", "/conv/Conv", "x conv.weight"), ("Conv", "/conv_1/Conv", "x conv_1.weight")
    )
    assert scopes == [["conv#0"], ["conv_1#0"]]


def test_the_calls_of_a_block_are_counted_by_those_of_its_layers():
    """The block calls its activation twice, and the model calls the block twice."""
    names = ("conv/Conv", "act/Relu", "act_1/Relu", "conv_1/Conv", "act_2/Relu", "act_3/Relu")
    scopes = read(*((name.partition("/")[2], f"/block/{name}", "x") for name in names))
    calls = [0, 0, 0, 1, 1, 1]
    assert [outer for outer, _ in scopes] == [f"block#{number}" for number in calls]
    acts = [inner for _, inner in scopes if "act" in inner]
    assert acts == [f"block.act#{number}" for number in range(4)]


def test_weights_tell_the_path_of_a_module_in_one_that_is_not_called():
    nodes = (
        ("Conv", "/body/conv/Conv", "x net.body.stem.conv.weight_quantized"),
        ("Conv", "/body/conv_1/Conv", "x net.body.head.conv.weight_quantized"),
        ("Relu", "/body/act/Relu", "x"),
    )
    assert read(*nodes) == [
        ["net.body#0", "net.body.stem.conv#0"],
        ["net.body#0", "net.body.head.conv#0"],
        ["net.body#0", "net.body.act#0"],
    ]


def test_the_model_tells_the_path_of_a_module_in_a_dictionary():
    modules = {"acts.first": "torch.nn.modules.activation.ReLU", "acts": "", "conv": ""}
    first = ("Relu", "/first/Relu", "x")
    assert read(first, modules=modules) == [["acts.first#0"]]
    assert kinds(first, modules=modules) == {"acts.first": "torch.nn.modules.activation.ReLU"}


def test_a_convolution_with_computed_weights_has_its_norm_merged():
    assert kinds(
        ("Conv", "/a/Conv", "x onnx::Conv_7 onnx::Conv_8"),
        ("Conv", "/b/Conv", "x b.weight b.bias"),
        ("Conv", "/c/Conv", "x onnx::Conv_9"),  # a weight that the model computes
        ("ConvInteger", "/d/Conv_quant", "x onnx::Conv_3_quantized", "/d/Conv_output_0_quantized"),
        modules={"a": "torch.nn.Conv2d"},
    ) == {
        "a": "onnx.Conv+BatchNorm",
        "b": "onnx.Conv",
        "c": "onnx.Conv",
        "d": "onnx.Conv+BatchNorm",
    }


def test_a_layer_has_the_operators_inside_it_as_its_type():
    names = ("act/Sigmoid", "act/Mul", "norm/Pow", "norm/Add", "norm/Sub", "norm/Div", "norm/Mul")
    nodes = [(name.rpartition("/")[2], f"/block/{name}", "x") for name in names]
    found = {"block": "onnx.Module", "block.act": "onnx.Sigmoid+Mul", "block.norm": "onnx.Module"}
    assert kinds(*nodes) == found


def test_a_fused_node_computes_the_values_of_two_modules():
    fused = ("SkipLayerNormalization", "SkipLayerNorm", "x")
    outputs = "/block/norm/LayerNormalization_output_0", "/block/Add_3_output_0"
    ((norm, add),) = read_values((*fused, *outputs))
    assert (norm.scopes[-1].path, norm.function, norm.outputs) == (
        "block.norm",
        "layer_norm",
        outputs[:1],
    )
    assert (add.scopes[-1].path, add.function, add.step) == ("block", "add", "/block/Add_3")


def test_constants_shapes_and_quantizers_belong_to_no_module():
    nodes = [
        node("Constant", "/a/Constant", ""),
        node("QuantizeLinear", "q", "x", "/a/Relu_output_0_quantized"),
        node("Relu", "/a/Relu", "/a/Relu_output_0_quantized"),
    ]
    dependent = {"/a/Relu_output_0_quantized", "/a/Relu_output_0"}
    assert [len(values) for values in read_names(nodes, dependent, {})] == [0, 0, 1]


def test_a_product_with_a_bias_is_a_linear_function():
    product = ("MatMul", "/attn/MatMul", "x onnx::MatMul_3")
    bias = ("Add", "/attn/Add", "qkv.bias /attn/MatMul_output_0")
    other = ("Add", "/attn/Add_1", "/attn/Add_output_0 /attn/MatMul_output_0")
    found = [values[0] for values in read_values(product, bias, other)]
    assert [each.function for each in found] == ["linear", "linear", "add"]
    assert [each.step for each in found] == ["/attn/MatMul", "/attn/MatMul", "/attn/Add_1"]


@pytest.mark.parametrize(
    ("others", "path"),
    [(["a.act", "a.x.act"], "a.act"), (["a.x.act", "a.y.act"], "a.act"), (["a.x.act"], "a.x.act")],
)
def test_the_only_path_of_the_model_with_the_same_end_is_the_path(others, path):
    modules = dict.fromkeys(["a", "b.act", *others], "")
    assert read(("Relu", "/a/act/Relu", "x"), modules=modules) == [["a#0", f"{path}#0"]]


def test_a_node_keeps_its_name_when_a_tool_renames_its_value():
    assert read(("Relu", "/block/act/Relu", "x", "17")) == [["block#0", "block.act#0"]]


def test_the_number_in_a_name_is_the_call_in_a_file_with_another_order_of_nodes():
    scopes = read(
        *(("Conv", f"/head/{name}/Conv", "x head.0.weight") for name in ("head.0_1", "head.0")),
        *(("Relu", f"/head/{name}/Relu", "x") for name in ("head.1_2", "head.1_1", "head.1")),
        ("Conv", "/head/head.0_2/Conv", "x head.0.weight"),
    )
    inner = [f"head.0#{number}" for number in (1, 0)] + [f"head.1#{n}" for n in (2, 1, 0)]
    assert [each[1] for each in scopes] == [*inner, "head.0#2"]
    assert [each[0] for each in scopes] == [f"head#{number}" for number in (1, 0, 2, 1, 0, 2)]


def test_a_call_that_the_file_lacks_is_counted():
    """The first call got a constant; its result is one, too."""
    scopes = read(*(("Relu", f"/act_{number}/Relu", "x") for number in (1, 2)), modules={"act": ""})
    assert scopes == [["act#1"], ["act#2"]]


def test_a_name_that_may_be_the_second_call_of_another_module_counts_no_calls():
    nodes = [("Relu", f"/{name}/Relu", "x") for name in ("relu", "relu_1", "act")]
    found = read_values(*nodes, modules={"relu": "", "relu_1": "", "act": ""})
    assert [each.scopes[0].index for values in found for each in values] == [0, None, 0]
