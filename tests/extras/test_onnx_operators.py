"""ONNX files made by hand: the axes and the numbers that they take, their cost, their weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hookcli.passes.onnx_operators import (
    count_flops,
    find_channel_axis,
    find_weights,
    list_weights,
)
from tests.extras.exports import export, save_program

pytestmark = pytest.mark.exports

WEIGHT = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype("f4")
TO_NCHW = ("Transpose", ["x"], ["t"], {"perm": [0, 3, 1, 2]})


@pytest.fixture
def write(tmp_path):
    """Write ``net.onnx`` in an empty folder, and return the folder."""
    onnx = pytest.importorskip("onnx")

    def make(shape, nodes, weights, dtype="float32", outputs=("y",), domain=""):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        made = [
            onnx.helper.make_node(kind_, takes, gives, name=f"{kind_}_{gives[0]}", **attributes)
            for kind_, takes, gives, attributes in ((*each, {})[:4] for each in nodes)
        ]
        tensors = [onnx.numpy_helper.from_array(each, name) for name, each in weights.items()]
        taken = onnx.helper.make_tensor_value_info("x", kind, shape)
        given = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = onnx.helper.make_graph(made, "net", [taken], given, tensors)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), "net.onnx")
        return tmp_path

    return make


def draw(side=16):
    pixels = np.random.default_rng(1).integers(0, 256, (side, side, 3), dtype="u1")
    Image.fromarray(pixels).save("a.png")
    return pixels


@pytest.fixture
def inspect(run):
    """Run ``inspect`` on a picture that keeps its size, and return the mean of each call."""

    def command(*words, image="a.png"):
        common = ("net.onnx", image, "--resize", "16", "--grids", "none", "--format", "json")
        ended = run("inspect", *common, "--layers", "all", *words)
        assert ended.code == 0, ended.err
        return {row["call_id"]: row["mean"] for row in json.loads(ended.out)["layers"]}

    return command


def mean_of(pixels):
    """Return the mean output of the file, run by ONNX Runtime itself."""
    session = pytest.importorskip("onnxruntime").InferenceSession("net.onnx")
    return float(session.run(None, {"x": pixels})[0].mean())


@pytest.mark.parametrize("shape", [["N", 16, 16, 3], ["N", "H", "W", "C"]])
def test_a_file_that_takes_nhwc_gets_nhwc(write, inspect, shape):
    write(shape, [TO_NCHW, ("Conv", ["t", "w"], ["y"])], {"w": WEIGHT})
    pixels = (draw()[None] / np.float32(255)).astype("f4")
    words = ("--size", "16") if "H" in shape else ()
    shown = inspect(*words, "--mean", "0,0,0", "--std", "1,1,1")
    assert shown["Conv_y"] == pytest.approx(mean_of(pixels), rel=1e-5)


@pytest.mark.parametrize(("dtype", "is_nhwc"), [("uint8", True), ("int64", False)])
def test_whole_numbers_are_those_of_the_picture(write, inspect, dtype, is_nhwc):
    onnx = pytest.importorskip("onnx")
    last = TO_NCHW if is_nhwc else ("Identity", ["x"], ["t"])
    cast = ("Cast", ["t"], ["f"], {"to": onnx.TensorProto.FLOAT})
    shape = [1, 16, 16, 3] if is_nhwc else [1, 3, 16, 16]
    write(shape, [last, cast, ("Conv", ["f", "w"], ["y"])], {"w": WEIGHT}, dtype)
    pixels = draw()[None].astype(dtype)
    expected = mean_of(pixels if is_nhwc else pixels.transpose(0, 3, 1, 2))
    assert inspect()["Conv_y"] == pytest.approx(expected, rel=1e-6)


def test_the_user_may_name_the_layout(write, inspect):
    nodes = [("Reshape", ["x", "s"], ["f"]), ("MatMul", ["f", "m"], ["y"])]
    weights = {"s": np.array([1, -1]), "m": np.ones((16 * 16 * 12, 2), "f4")}
    weights["m"][: 16 * 12] = 0  # the first row of a picture in NHWC
    write([1, 16, 16, 12], nodes, weights)
    np.save("a.npy", np.broadcast_to(np.arange(16.0)[:, None], (12, 16, 16)).astype("f4"))
    shown = inspect("--input-layout", "NHWC", image="a.npy")
    assert shown["(model)"] == pytest.approx(sum(range(16)) * 16 * 12)


@pytest.fixture
def listing(run):
    """Run ``layers``, and return the rows by call id and the total."""

    def command(*words):
        ended = run("layers", "net.onnx", "--size", "16", "--format", "json", *words)
        assert ended.code == 0, ended.err
        document = json.loads(ended.out)
        return {row["call_id"]: row for row in document["layers"]}, document["total"]

    return command


CONV = ("Conv", ["x", "w"], ["c"])


@pytest.mark.parametrize(
    ("node", "weights", "flops"),
    [
        # 8 channels of 7 x 7 places, each of 3 x 3 x 3 products
        (("Conv", ["x", "w"], ["y"], {"strides": [2, 2]}), {}, 2 * 8 * 49 * 27),
        (("Conv", ["c", "v"], ["y"], {"group": 2}), {"v": (4, 4, 3, 3)}, 2 * 4 * 144 * 36),
        # each of 8 x 14 x 14 values is spread over 2 of 4 channels and 2 x 2 places
        (
            ("ConvTranspose", ["c", "v"], ["y"], {"group": 2, "strides": [2, 2]}),
            {"v": (8, 2, 2, 2)},
            2 * 8 * 196 * 8,
        ),
        (("MatMul", ["c", "v"], ["y"]), {"v": (14, 5)}, 2 * 8 * 14 * 14 * 5),
        (("MatMul", ["c", "c"], ["y"]), {}, 2 * 8 * 14 * 14 * 14),
        (("Relu", ["c"], ["y"]), {}, 0),
    ],
)
def test_products_are_counted_from_the_shapes(write, listing, node, weights, flops):
    weights = {name: np.ones(shape, "f4") for name, shape in weights.items()}
    write([1, 3, 16, 16], [CONV, node], {"w": WEIGHT, **weights})
    rows, total = listing()
    first = 2 * 8 * 196 * 27
    assert rows["Conv_c"]["flops"] == first
    assert rows[f"{node[0]}_y"]["flops"] == flops
    assert total["flops"] == rows["(model)"]["flops"] == first + flops
    assert rows["Conv_c"]["share"] == pytest.approx(first / (first + flops), abs=1e-6)


@pytest.mark.parametrize(("transposed", "shape"), [(0, (196, 5)), (1, (5, 196))])
def test_a_gemm_is_counted_whether_or_not_it_turns_its_inputs(write, listing, transposed, shape):
    flat = ("Reshape", ["c", "s"], ["f"])
    gemm = ("Gemm", ["f", "m"], ["y"], {"transB": transposed})
    weights = {"w": WEIGHT, "s": np.array([8, 196]), "m": np.ones(shape, "f4")}
    write([1, 3, 16, 16], [CONV, flat, gemm], weights)
    assert listing()[0]["Gemm_y"]["flops"] == 2 * 8 * 196 * 5
    turned = ("Gemm", ["f", "m"], ["y"], {"transA": 1, "transB": transposed})
    weights["m"] = np.ones((5, 8) if transposed else (8, 5), "f4")
    write([1, 3, 16, 16], [CONV, flat, turned], weights)
    assert listing()[0]["Gemm_y"]["flops"] == 2 * 8 * 196 * 5


def test_an_operator_without_a_formula_is_named(write, run, listing):
    einsum = ("Einsum", ["c", "c"], ["y"], {"equation": "nchw,nchv->ncwv"})
    write([1, 3, 16, 16], [CONV, einsum], {"w": WEIGHT})
    rows, total = listing("--sort", "flops")
    assert (rows["Einsum_y"]["flops"], rows["Conv_c"]["flops"]) == (None, 2 * 8 * 196 * 27)
    assert (total["flops"], total["counted_flops"]) == (None, 2 * 8 * 196 * 27)
    assert total["uncounted"] == ["Einsum in Einsum_y"]
    text = run("layers", "net.onnx", "--sort", "flops").out
    assert "at least 0.1 MFLOPs (not counted: Einsum in Einsum_y)" in text


@pytest.mark.parametrize("is_constant", [True, False])
def test_weights_are_counted_wherever_the_file_keeps_them(write, listing, is_constant):
    onnx = pytest.importorskip("onnx")
    bias = np.arange(8, dtype="f4")
    nodes: list[Any] = [("Identity", ["b"], ["same"]), ("Conv", ["x", "w", "same"], ["y"])]
    weights = {"w": WEIGHT, "b": bias}
    if is_constant:
        values = {name: onnx.numpy_helper.from_array(each) for name, each in weights.items()}
        made = [("Constant", [], [name], {"value": each}) for name, each in values.items()]
        nodes, weights = [*made, *nodes], {}
    write([1, 3, 16, 16], nodes, weights)
    rows, total = listing()
    assert (rows["Conv_y"]["params"], total["params"]) == (216 + 8, 216 + 8)


class Parts(nn.Module):
    """Layers for which exporters make up scales, zeros and initial states."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.group, self.bare = nn.GroupNorm(4, 8), nn.InstanceNorm2d(8)
        self.tracked = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)
        self.plain = nn.LayerNorm(8, elementwise_affine=False)
        self.lstm = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.tracked(self.bare(self.group(self.conv(x))))
        tokens = self.plain(x.flatten(2).transpose(1, 2))
        tokens = self.gru(self.lstm(tokens)[0])[0]
        return self.attention(tokens, tokens, tokens)[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_new", [True, False])
def test_what_an_exporter_makes_up_is_no_parameter(listing, is_new):
    torch.manual_seed(0)
    net = Parts().eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    torch.onnx.export(net, (torch.rand(1, 3, 16, 16),), "net.onnx", dynamo=is_new, verbose=False)
    rows, total = listing()
    assert total["params"] == sum(each.numel() for each in net.parameters())
    assert rows["bare"]["params"] == 0
    assert rows["group"]["params"] == rows["tracked"]["params"] == 16


def test_zeros_of_the_model_itself_are_parameters(write, listing):
    fill = {"n.weight": np.ones(3, "f4"), "n.bias": np.zeros(3, "f4")}
    write([1, 3, 16, 16], [("InstanceNormalization", ["x", *fill], ["y"])], fill)
    assert listing()[1]["params"] == 6


def test_the_operations_of_a_program_and_of_a_file_are_those_of_the_model(run, nets):
    np.save("a.npy", np.ones((3, 24, 24), "f4"))
    export("net.onnx")
    save_program("net.pt2")

    def count(name, *words):
        ended = run("layers", name, "--ops", "--format", "json", *words)
        return {row["call_id"]: row["flops"] for row in json.loads(ended.out)["layers"]}

    model, program, file = count("nets.py:Net", "--size", "24"), count("net.pt2"), count("net.onnx")
    assert program == {call: model[call] for call in program}
    for n in range(3):  # the exporter merges the convolution into the norm
        file[f"blocks.{n}.norm"] -= model[f"blocks.{n}.conv"]
    assert file == {call: model[call] for call in file}


def operator(kind, inputs, domain="", outputs=("y",), **attributes):
    helper = pytest.importorskip("onnx").helper
    return helper.make_node(kind, inputs.split(), [*outputs], domain=domain, **attributes)


def graph(*nodes, **constants):
    onnx = pytest.importorskip("onnx")
    tensors = [onnx.numpy_helper.from_array(each, name) for name, each in constants.items()]
    return onnx.helper.make_graph([*nodes], "net", [], [], tensors)


@pytest.mark.parametrize(
    ("nodes", "axis"),
    [
        ([("Conv", "x w", {})], 1),
        ([("Transpose", "x", {"perm": [0, 3, 1, 2]}), ("Conv", "y w", {})], 3),
        ([("Transpose", "x", {}), ("Conv", "y w", {})], 2),  # the axes the other way round
        ([("Sub", "x m", {}), ("Pad", "y p", {}), ("Conv", "y w", {})], 1),
        ([("Flatten", "x", {}), ("Conv", "y w", {})], None),
        ([("Relu", "x", {})], None),
    ],
)
def test_the_first_operators_show_the_axis_of_the_channels(nodes, axis):
    made = [operator(kind, inputs, **attributes) for kind, inputs, attributes in nodes]
    assert find_channel_axis(graph(*made), "x") == axis


SHAPES = {"a": (1, 6, 32), "b": (16, 1, 16), "y": (1, 6, 16)}


@pytest.mark.parametrize(
    ("kind", "domain", "attributes", "flops"),
    [
        ("MatMulNBits", "com.microsoft", {"K": 30, "N": 16}, 2 * 96 * 30),  # padded to 32
        ("MatMul", "", {}, 2 * 96 * 32),
        ("Relu", "", {}, 0),
        ("Attention", "com.microsoft", {}, None),
        ("TensorArrayMap", "own.library", {}, None),
        ("Loop", "", {}, None),
    ],
)
def test_only_operators_of_known_libraries_without_products_cost_nothing(
    kind, domain, attributes, flops
):
    assert count_flops(operator(kind, "a b", domain, **attributes), SHAPES) == flops


def test_weights_of_four_bits_are_counted_by_the_size_of_the_matrix():
    node = operator("MatMulNBits", "x w scales", "com.microsoft", K=32, N=16)
    packed = np.zeros((16, 1, 16), "u1")
    found = find_weights(graph(w=packed, scales=np.ones(16, "f4")))
    assert list_weights(node, found) == (("w", 512),)


def test_the_statistics_of_a_norm_are_no_weights():
    names = ("scale", "bias", "mean", "var")
    found = find_weights(graph(**dict.fromkeys(names, np.ones(8, "f4"))))
    node = operator("BatchNormalization", "x scale bias mean var")
    assert list_weights(node, found) == (("scale", 8), ("bias", 8))


def test_whole_numbers_of_64_bits_and_single_constants_are_no_weights():
    """The first are sizes and indices, and the second come from code such as ``x * 2``."""
    onnx = pytest.importorskip("onnx")
    constants = {
        name: operator("Constant", "", outputs=[name], value=onnx.numpy_helper.from_array(value))
        for name, value in {"two": np.ones(1, "f4"), "many": np.ones(2, "f4")}.items()
    }
    made = graph(*constants.values(), size=np.ones(4, "i8"), one=np.ones(1, "f4"))
    assert find_weights(made) == {"size": {}, "one": {"one": 1}, "two": {}, "many": {"many": 2}}


def test_the_bias_of_one_channel_is_a_weight_though_its_name_is_made_up():
    node = operator("Conv", "x onnx::Conv_1 onnx::Conv_2")
    weights = {"onnx::Conv_1": np.ones((1, 8, 1, 1), "f4"), "onnx::Conv_2": np.ones(1, "f4")}
    found = find_weights(graph(node, **weights))
    assert list_weights(node, found) == (("onnx::Conv_1", 8), ("onnx::Conv_2", 1))
