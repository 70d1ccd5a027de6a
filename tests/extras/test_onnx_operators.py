"""ONNX files made by hand: the axes and the numbers that they take, their cost, their weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.exports

WEIGHT = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype("f4")
TO_NCHW = ("Transpose", ["x"], ["t"], {"perm": [0, 3, 1, 2]})


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write ``net.onnx`` in an empty folder, and return the folder."""
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)

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


@pytest.mark.parametrize("shape", [["N", 16, 16, 3], ["N", "H", "W", 3], ["N", "H", "W", "C"]])
def test_a_file_that_takes_nhwc_gets_nhwc(write, inspect, shape):
    write(shape, [TO_NCHW, ("Conv", ["t", "w"], ["y"])], {"w": WEIGHT})
    pixels = (draw()[None] / np.float32(255)).astype("f4")
    words = ("--size", "16") if "H" in shape else ()
    shown = inspect(*words, "--mean", "0,0,0", "--std", "1,1,1")
    assert shown["Conv_y"] == pytest.approx(mean_of(pixels), rel=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("is_nhwc", [True, False])
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


def test_the_layout_of_a_model_that_is_no_file_is_refused(run, write):
    write([1, 3, 16, 16], [("Conv", ["x", "w"], ["y"])], {"w": WEIGHT})
    draw()
    ended = run("inspect", "resnet18", "a.png", "--input-layout", "NHWC")
    assert ended.code == 2
    assert "error: --input-layout NHWC is for files of models, and resnet18 is none" in ended.err


def test_the_listing_names_the_input_as_the_file_takes_it(write, run):
    write([1, 16, 16, 3], [TO_NCHW, ("Conv", ["t", "w"], ["y"])], {"w": WEIGHT})
    ended = run("layers", "net.onnx", "--format", "json")
    assert json.loads(ended.out)["input_shape"] == [1, 16, 16, 3]
