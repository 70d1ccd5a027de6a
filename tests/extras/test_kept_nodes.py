"""The nodes that ``hookcli.sensitivity`` lists, in real exports and with the tools that take them.

The nodes of a layer are found a second time by the values of its weights.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import hookcli
from hookcli.comparison.sensitivity import open_nodes
from tests.extras.exports import hide_names

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]
LAYERS = (
    "stem",
    "depthwise",
    "stages.0.0",
    "stages.1.0",
    "again",
    "attend",
    "proj",
    "more",
    "head",
)
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity")
WITH_WEIGHTS = ("Conv", "Gemm", "MatMul")
CPU = "CPUExecutionProvider"


class Mixed(nn.Module):
    """Convolutions with and without a BatchNorm to merge, a layer called twice, and attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.depthwise, self.late = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8)
        stages = (nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(2))
        self.stages = nn.ModuleList(stages)
        self.again = nn.Conv2d(8, 8, 3, padding=1)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.proj, self.more, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.bias)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        for layer in (self.depthwise, self.again, self.proj, self.more):
            nn.init.zeros_(layer.bias)  # of which exporters keep one

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = self.late(self.depthwise(x).relu())
        for stage in self.stages:
            x = stage(x)
        x = self.again(self.again(x).relu())
        x = x.flatten(2).transpose(1, 2)
        x = x + self.attend(x, x, x)[0]
        return self.head(self.more(self.proj(x).relu()).mean(1))

    @property
    def norms(self):
        return {"stem": self.norm} | {
            f"stages.{n}.0": self.get_submodule(f"stages.{n}.1") for n in range(2)
        }


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Mixed()

    def forward(self, x):
        return self.model(x)


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        return self.two(self.one(x).mean((2, 3)))


class Outside(nn.Module):
    """The last convolution of the body is merged into a norm outside it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, bias=False))
        self.norm, self.head = nn.BatchNorm2d(4), nn.Linear(4, 3)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.head(self.norm(self.body(x)).relu().mean((2, 3)))


class TwoPaths(nn.Module):
    """One convolution has two paths, and the model calls it by both."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), self.conv)
        self.head = nn.Linear(3, 2)
        nn.init.constant_(self.head.weight, 1e-3)  # a format has these values nearly exactly

    def forward(self, x):
        return self.head(self.body(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def onnx():
    return pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def pixels():
    return torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 12, 10)).astype("f4"))


def export(net, pixels, file, *, dynamo):
    with contextlib.redirect_stdout(None):
        torch.onnx.export(net.eval(), (pixels,), file, dynamo=dynamo, verbose=False)


@pytest.fixture(scope="module", params=[True, False], ids=["dynamo", "torchscript"])
def exported(request, onnx, pixels, tmp_path_factory):
    file = tmp_path_factory.mktemp("exported") / "net.onnx"
    export(Mixed(), pixels, file, dynamo=request.param)
    return file


@dataclass
class File:
    """The nodes of a file, found by what they compute and not by what they are called."""

    graph: Any

    @classmethod
    def of(cls, onnx, file):
        return cls(onnx.load(file).graph)

    def __post_init__(self):
        to_array = pytest.importorskip("onnx").numpy_helper.to_array
        self.made = {name: node for node in self.graph.node for name in node.output}
        self.constants = {each.name: to_array(each) for each in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = to_array(node.attribute[0].t)
            elif node.op_type == "Identity" and node.input[0] in self.constants:
                self.constants[node.output[0]] = self.constants[node.input[0]]

    def find_by_weight(self, weight) -> Iterator[Any]:
        """Yield the nodes that multiply with a weight, and those that add a bias to the product."""
        weight = weight.detach().numpy()
        for node in self.graph.node:
            constant = self.constants.get(node.input[1]) if node.op_type in WITH_WEIGHTS else None
            alike = (each for each in (weight, weight.T) if np.shape(constant) == each.shape)
            if any(np.allclose(each, constant, rtol=1e-4, atol=1e-6) for each in alike):
                yield node
                if node.op_type == "MatMul":
                    yield from filter(partial(self.adds_to, node.output[0]), self.graph.node)

    def adds_to(self, product, node) -> bool:
        others = {*node.input} - {product}
        return node.op_type == "Add" and len(others) == 1 and others <= self.constants.keys()

    def follow(self, start) -> set[str]:
        """Return the names of the nodes that depend on a node, and not only on a shape of it."""
        values, names = {*start.output}, set()
        for node in self.graph.node:
            if values & {*node.input} and node.op_type != "Shape":
                values |= {*node.output}
                names.add(node.name)
        return names

    def name_nodes(self, net, path) -> set[str]:
        layer = net.get_submodule(path)
        if path in net.norms:
            layer = fuse_conv_bn_eval(layer, net.norms[path])
        if not isinstance(layer, nn.MultiheadAttention):
            return {node.name for node in self.find_by_weight(layer.weight)}
        first, *rest = self.find_by_weight(layer.in_proj_weight)
        (last,) = self.find_by_weight(layer.out_proj.weight)
        between = {
            node.name
            for node in self.graph.node
            if node.name in self.follow(first)
            and last.name in self.follow(node)
            and node.op_type not in MOVES
        }
        return {first.name, last.name} | between | {node.name for node in rest}

    def name_nodes_of(self, paths) -> set[str]:
        net = Mixed().eval()
        return {name for path in paths for name in self.name_nodes(net, path)}

    def list_weights(self) -> dict[str, str]:
        """Map the name of each node that multiplies with a weight to the weight's name."""
        nodes = (node for node in self.graph.node if node.op_type in WITH_WEIGHTS)
        return {node.name: node.input[1] for node in nodes if node.input[1] in self.constants}


def rank(file, pixels, net=Mixed, **words):
    words = {"keep": "40%", "device": "cpu"} | words
    return hookcli.sensitivity(net().eval(), pixels, to="int8", nodes_of=file, **words)


def warnings_of(found):
    return [note.text for note in found.notes if note.level == "warning"]


@pytest.mark.parametrize("path", LAYERS)
def test_the_nodes_of_a_layer_are_those_that_use_its_weights(onnx, exported, path):
    expected = File.of(onnx, exported).name_nodes(Mixed().eval(), path)
    assert len(expected) >= {"again": 2, "proj": 2, "more": 2, "attend": 9}.get(path, 1)
    names = open_nodes(exported)(path)
    assert {*names} == expected
    assert len(names) == len(expected)


def test_a_list_has_the_nodes_of_its_layers_in_every_form(onnx, exported, pixels):
    found = rank(exported, pixels)
    kept, file = found.document().keep, File.of(onnx, exported)
    assert 3 < len(kept.modules) < len(LAYERS)
    expected = file.name_nodes_of(kept.modules)
    assert {*kept.nodes_to_exclude} == {*kept.node_block_list} == expected
    assert len(kept.nodes_to_exclude) == len(expected)
    assert read_as_trtexec(kept.layer_precisions) == dict.fromkeys(kept.nodes_to_exclude, "fp32")
    assert warnings_of(found) == []


def test_onnxruntime_quantizes_all_weights_but_those_of_the_list(onnx, exported, pixels, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    kept = rank(exported, pixels).document().keep
    file, out = File.of(onnx, exported), tmp_path / "int8.onnx"
    images = [{file.graph.input[0].name: pixels.numpy()}]

    take = {"get_next": lambda _: images.pop() if images else None}
    once = type("Once", (quantization.CalibrationDataReader,), take)()
    excluded = [*kept.nodes_to_exclude]
    quantization.quantize_static(exported, out, once, nodes_to_exclude=excluded)
    after = File.of(onnx, out)
    exact = {*after.list_weights()}
    assert exact == {*file.list_weights()} & file.name_nodes_of(kept.modules)
    assert 0 < len(exact) < len(file.list_weights())
    for node in after.graph.node:
        if node.op_type in WITH_WEIGHTS and node.name not in kept.nodes_to_exclude:
            assert {after.made[name].op_type for name in node.input[:2]} == {"DequantizeLinear"}


def test_the_converter_to_float16_keeps_the_nodes_of_the_list(onnx, exported, pixels, tmp_path):
    float16 = import_module("onnxconverter_common.float16")
    runtime = pytest.importorskip("onnxruntime")
    kept = rank(exported, pixels).document().keep
    file = File.of(onnx, exported)
    options = {"node_block_list": [*kept.node_block_list], "keep_io_types": True}
    model = float16.convert_float_to_float16(onnx.load(exported), **options)
    after = File(onnx.shape_inference.infer_shapes(model, strict_mode=True).graph)
    types = {each.name: each.type.tensor_type.elem_type for each in after.graph.value_info}
    types |= {each.name: each.data_type for each in after.graph.initializer}
    computing = file.name_nodes_of(LAYERS)
    wide = set()
    for node in after.graph.node:
        if node.name in computing and types[node.output[0]] == onnx.TensorProto.FLOAT:
            assert {types[name] for name in node.input[:2]} == {onnx.TensorProto.FLOAT}
            wide.add(node.name)
    assert wide == file.name_nodes_of(kept.modules)
    session = runtime.InferenceSession(model.SerializeToString(), providers=[CPU])
    (output,) = session.run(None, {file.graph.input[0].name: pixels.numpy()})
    exact = Mixed().eval()(pixels).detach().numpy()
    assert 0 < np.abs(output - exact).max() < 1e-2


def read_as_trtexec(text):
    """Parse a value of --layerPrecisions as its help describes it: layerName:precision[,spec]."""
    return dict(each.rsplit(":", 1) for each in text.split(","))


def rename(onnx, file, out, names):
    """Give the nodes of a file new names; ``names`` maps old ones to new ones."""
    model = onnx.load(file)
    for node in model.graph.node:
        node.name = names(node.name)
    onnx.save(model, out)
    return out


def test_names_that_trtexec_cannot_read_are_left_out_of_its_list(onnx, exported, pixels, tmp_path):
    plain = rank(exported, pixels).document().keep
    first, second, third, *rest = plain.nodes_to_exclude
    names = {first: "a,b", second: "it's", third: "a:b"}
    file = rename(onnx, exported, tmp_path / "odd.onnx", lambda name: names.get(name, name))
    found = rank(file, pixels)
    kept = found.document().keep
    assert kept.nodes_to_exclude == ("a,b", "it's", "a:b", *rest)
    assert read_as_trtexec(kept.layer_precisions) == dict.fromkeys(["a:b", *rest], "fp32")
    text = "layer_precisions lacks names that trtexec cannot read: a,b, it's"
    assert warnings_of(found) == [text]


@pytest.mark.parametrize("some", [True, False])
def test_layers_whose_nodes_have_no_names_are_told_in_one_line(
    onnx, exported, pixels, tmp_path, some
):
    plain = rank(exported, pixels).document().keep
    nodes = {path: open_nodes(exported)(path) for path in plain.modules}
    hidden = {nodes["head"][0]} if some else {name for each in nodes.values() for name in each}
    file = rename(onnx, exported, tmp_path / "x.onnx", lambda n: "" if n in hidden else n)
    found = rank(file, pixels)
    assert found.document().keep.nodes_to_exclude == tuple(
        name for name in plain.nodes_to_exclude if name not in hidden
    )
    told = ["head"] if some else plain.modules
    (text,) = warnings_of(found)
    assert text == f"nodes of {file} have no names, so they are not listed: {', '.join(told)}"


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("other", [Wrapped, Other])
def test_a_file_of_another_network_is_told_in_one_line(onnx, pixels, tmp_path, other, dynamo):
    file = tmp_path / "other.onnx"
    export(other(), pixels, file, dynamo=dynamo)
    found = rank(file, pixels)
    kept = found.document().keep
    assert (kept.nodes_to_exclude, kept.layer_precisions) == ((), "")
    (text,) = warnings_of(found)
    named = ", ".join(kept.modules)
    start = f"no node of {file} says that it computes {named}"
    assert text == f"{start}; is it an export of this model itself?"


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_block_has_all_its_nodes_though_one_is_merged_elsewhere(onnx, pixels, tmp_path, dynamo):
    file = tmp_path / "outside.onnx"
    export(Outside(), pixels, file, dynamo=dynamo)
    graph = onnx.load(file).graph
    kinds = {node.name: node.op_type for node in graph.node}
    assert [kinds[name] for name in open_nodes(file)("body")] == ["Conv", "Relu", "Conv"]


def test_without_module_paths_a_layer_has_all_its_nodes_or_is_told(
    onnx, exported, pixels, tmp_path
):
    file, model = tmp_path / "net.onnx", onnx.load(exported)
    for node in model.graph.node:
        node.ClearField("metadata_props")
    onnx.save(model, file)
    hide_names(file)
    found = rank(file, pixels, keep="99%")
    kept, plain = found.document().keep, File.of(onnx, file)
    names = {path: open_nodes(file)(path) for path in kept.modules}
    told = [path for path in kept.modules if not names[path]]
    assert kept.nodes_to_exclude == tuple(name for each in names.values() for name in each)
    assert {*kept.nodes_to_exclude} == plain.name_nodes_of({*names} - {*told})
    assert {"again", "head"} <= names.keys() - told
    assert {"attend", "proj", "more"} - {kept.modules[-1]} <= {*told}
    assert warnings_of(found) == [f"no node of {file} says that it computes {', '.join(told)}"]


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_layer_with_two_paths_has_the_nodes_of_both(onnx, pixels, tmp_path, dynamo):
    file = tmp_path / "two.onnx"
    export(TwoPaths(), pixels, file, dynamo=dynamo)
    kept = rank(file, pixels, TwoPaths, round="weights", keep="50%").document().keep
    assert kept.modules == ("conv",)
    convs = (node.name for node in onnx.load(file).graph.node if node.op_type == "Conv")
    assert kept.nodes_to_exclude == (*convs,)
    assert len(kept.nodes_to_exclude) == 2
