"""Exports whose graphs differ from the model: folded calls, and files that tools have rewritten."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from hookcli.networks.tasks import CLASSIFICATION
from hookcli.passes.exported import ProgramRunner, load_program
from hookcli.passes.onnx_file import OnnxRunner
from tests.extras.exports import NETS, export, make, save_program

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")
pytestmark = [pytest.mark.exports, pytest.mark.filterwarnings("ignore")]

NAMES = ("Net", "Refine", "TwoNames", "Several", "Outside")
TOOLS = ("optimized", "static", "operators", "dynamic", "tool")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with networks, the files of exporters, and what tools made of them."""
    home = tmp_path_factory.mktemp("rewritten")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.syspath_prepend(home)
        Path("nets.py").write_text(NETS)
        np.save("a.npy", np.random.default_rng(0).normal(size=(3, 24, 20)).astype("f4"))
        for name in NAMES:
            export(f"{name}.onnx", name)
        save_program("Refine.pt2", "Refine")
        rewrite()
        sys.modules.pop("nets")
    return home


@pytest.fixture(autouse=True)
def folder(files, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(files)
    yield
    sys.modules.pop("nets", None)


def rewrite():
    """Write the files that tools make of ``Net.onnx``."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = "optimized.onnx"
    ort.InferenceSession("Net.onnx", options, providers=["CPUExecutionProvider"])
    for name, form in (("static", "QDQ"), ("operators", "QOperator")):
        reader, form = reader_of(np.load("a.npy")[None]), quantization.QuantFormat[form]
        quantization.quantize_static(
            "Net.onnx", f"{name}.onnx", reader, quant_format=form, per_channel=True
        )
    quantization.quantize_dynamic(
        "Net.onnx", "dynamic.onnx", weight_type=quantization.QuantType.QUInt8
    )
    model = onnx.load("Net.onnx")
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    del convs[-1].metadata_props[:]
    convs[-1].name = "put_here_by_a_tool"
    onnx.save(model, "tool.onnx")


def open_file(name):
    return OnnxRunner.of(Path(f"{name}.onnx"), CLASSIFICATION.arguments)


@pytest.mark.parametrize("name", [*NAMES, *TOOLS])
def test_every_node_of_a_file_is_in_one_call_or_left_out(name):
    graph = open_file(name).graph
    nodes = onnx.load(f"{name}.onnx").graph.node
    listed = [call for call in graph.calls if call.nodes]
    merged = sum(call.nodes - 1 for call in listed)
    assert len(listed) + merged + len(graph.left_out) == len(nodes)
    assert all(reason for _, reason in graph.left_out)
    values = {value for call in graph.calls for value in call.values}
    computing = [node for node in nodes if node.op_type.endswith(("Conv", "Gemm"))]
    if name in ("optimized", "operators"):
        assert values.issuperset(node.output[0] for node in computing)


def test_every_node_of_a_program_is_in_one_call_or_left_out():
    program = load_program(Path("Refine.pt2"))
    graph = ProgramRunner.of(program, CLASSIFICATION.arguments).graph
    nodes = [node for node in program.module().graph.nodes if node.op == "call_function"]
    assert sum(call.nodes for call in graph.calls) + len(graph.left_out) == len(nodes)


@pytest.mark.parametrize("name", ["static", "operators", "dynamic"])
def test_a_quantized_file_has_the_parameters_and_operations_of_the_model(run, name):
    ended = [run("layers", f"{each}.onnx", "--format", "json") for each in ("Net", name)]
    one, two = (json.loads(each.out)["total"] for each in ended)
    assert (two["params"], two["flops"]) == (one["params"], one["flops"])


@pytest.mark.parametrize("name", ["static", "operators", "dynamic"])
def test_the_numbers_of_a_quantized_file_are_the_weights_of_the_model(name):
    stored = {each.name: each for each in open_file(name).read_weights()}
    for path in ("stem.weight", "fc.weight"):
        weight = make().get_parameter(path).detach().double().numpy()
        assert (np.abs(stored[path].values - weight) <= stored[path].step).all()


def list_convolutions(file):
    runner = open_file(file).choosing(("conv",))
    return [layer.module_path for layer in runner.layers]


def test_a_convolution_that_a_tool_made_is_a_layer():
    assert list_convolutions("tool") == ["stem", *(f"blocks.{n}.norm" for n in (0, 1))] + [
        "blocks/put_here_by_a_tool"
    ]


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "onnx") for name in NAMES[1:]),
        ("Refine", "torch-export"),
        ("TwoNames", "torch-export"),
    ],
)
def test_an_export_of_a_healthy_model_has_no_culprit(compare, name, way):
    words = ("--against", way, "--layers", "all", "--blame")
    document = compare(f"nets.py:{name}", *words)
    assert (document["equal"], document["culprits"]) == (True, [])


def reasons_of(document):
    return {each["call_id"]: each["reason"] for each in document["left_out"]}


def test_a_call_that_the_exporter_folded_is_left_out_with_the_reason(compare):
    document = compare("nets.py:Refine", "--against", "onnx")
    rows = {row["call_id"] for row in document["layers"]}
    assert {"flow#1", "flow#2", "up", "up#1", "up#2"} < rows
    assert reasons_of(document) == {"flow": "left out, since it does not depend on the input"}
    document = compare("nets.py:Dead", "--against", "onnx")
    assert reasons_of(document) == {"conv": "left out, since the model does not use its result"}


@pytest.mark.parametrize("file", ["onnx=Refine.onnx", "torch-export=Refine.pt2"])
def test_a_fault_after_a_folded_call_is_named_in_files_of_others(compare, file):
    words = ("--against", file, "--blame")
    assert compare("nets.py:Refine", *words)["culprits"] == []
    found = compare("nets.py:refine_wrong", *words, code=7)["culprits"]
    assert {each.partition("#")[0] for each in found} == {"up"}


def test_a_kept_export_calls_a_module_by_its_first_name(compare):
    for kept, way in (("kept.onnx", "onnx"), ("kept.pt2", "torch-export")):
        compare("nets.py:TwoNames", "--against", way, "--keep-export", kept)
    program = ProgramRunner.of(load_program(Path("kept.pt2")), CLASSIFICATION.arguments)
    for graph in (open_file("kept").graph, program.graph):
        assert [call.call_index for call in graph.list_calls("act")] == [0, 1, 2]
        assert graph.list_calls("body.1") == []


@pytest.mark.parametrize(
    ("name", "match"),
    [("optimized", "order"), ("static", "id"), ("dynamic", "id"), ("dynamic", "order")],
)
def test_a_fault_is_named_in_a_file_that_a_tool_wrote(compare, name, match):
    words = ("--against", f"onnx={name}.onnx", "--match", match, "--blame")
    healthy = compare("nets.py:Net", *words, code=7 if name in ("static", "dynamic") else 0)
    assert healthy["culprits"] == []
    culprits = compare("nets.py:louder", *words, code=7)["culprits"]
    assert culprits == ["blocks.1.relu" if name in ("optimized", "static") else "blocks.1.norm"]


@pytest.mark.parametrize("name", ["static", "dynamic"])
def test_a_weight_that_rounding_does_not_explain_is_to_blame(compare, name):
    words = ("--against", f"onnx={name}.onnx", "--blame")
    document = compare("nets.py:slight", *words, code=7)
    assert document["culprits"] == ["stem"]
    assert "stem.weight is off by up to" in document["blame"]


def test_quantized_values_are_not_compared_with_others(compare):
    document = compare("nets.py:Net", "--against", "onnx=operators.onnx", "--blame", code=7)
    compared = [row for row in document["layers"] if row["dtype"]]
    assert {row["other_dtype"] for row in compared} == {"float32"}
    assert document["culprits"] == []
    assert reasons_of(document)["stem"] == "computed by nodes that do not say their module"


def test_quantized_convolutions_share_the_error_and_end_at_the_relu(compare):
    document = compare("nets.py:Net", "--against", "onnx=static.onnx", "--blame", code=7)
    assert document["culprits"] == []
    assert "spread evenly over 1 Conv2d, 4 ReLU" in document["blame"]
    rows = {row["call_id"]: row for row in document["layers"]}
    assert 1e-3 < rows["stem"]["own_rel_l2"] < 0.1
    assert rows["blocks.0.relu"]["other_call_id"] == "blocks.0.norm"
    assert reasons_of(document)["blocks.0.conv"] == "merged into blocks.0.relu"


def test_of_quantized_layers_that_a_file_does_not_tell_the_weights_name_one(compare):
    """Not the model, nor operations that are quantized, too."""
    document = compare("nets.py:louder", "--against", "onnx=operators.onnx", "--blame", code=7)
    assert document["culprits"] == ["blocks.1.conv"]
    assert document["blame"].endswith(" of (model)")


@pytest.mark.parametrize("index", ["9" * 5000, "-1"])
def test_a_damaged_index_of_a_call_is_no_index(index):
    model = onnx.load("Net.onnx")
    for node in model.graph.node:
        node.metadata_props.add(key="hookcli.calls", value=repr([f"stem#{index}"]))
        node.metadata_props.add(key="hookcli.function", value=repr(["relu", "relu", index]))
    onnx.save(model, "damaged.onnx")
    assert "stem" in {layer.module_path for layer in open_file("damaged").layers}


def test_a_convolution_is_compared_where_the_norm_that_it_absorbed_ends(tmp_path):
    """Its bias keeps its name, so that the file does not tell that there was a BatchNorm."""
    norm = nn.BatchNorm2d(8)
    nn.init.uniform_(norm.running_var, 0.1, 0.2)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    rows = quantize(net, torch.rand(1, 3, 16, 16), tmp_path).layers
    compared = {row.call_id: row.rel_l2 for row in rows if row.rel_l2 is not None}
    assert "0" not in compared
    assert compared["1"] < 0.1


@pytest.mark.parametrize("factor", [1, 1.5])
@pytest.mark.parametrize("way", ["dynamic", "QOperator"])
def test_a_small_quantized_model_has_a_culprit_only_with_a_fault(tmp_path, way, factor):
    """Few layers are alike there, and a pooling layer passes on what is quantized."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    layers = nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 8, 2)
    net = nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    other, x = copy.deepcopy(net), torch.rand(1, 3, 16, 16)
    other.get_parameter("4.weight").data[:, 2] *= factor
    document = quantize(net, x, tmp_path, other, way)
    assert bool(document.culprits) is (factor != 1)
    assert factor == 1 or "4.weight is off by up to" in document.blame
    assert "int" not in {row.other_dtype.strip("8u") for row in document.layers}


def test_a_fault_between_two_quantized_files_is_not_the_noise_of_quantizing(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    x, file = torch.rand(1, 3, 16, 16), tmp_path / "quantized.onnx"
    quantize(net, x, tmp_path)
    model = onnx.load(file)
    (scale,) = (n for n in model.graph.initializer if n.name == "2.weight_scale")
    scale.CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(scale) * 1.05, scale.name)
    )
    onnx.save(model, tmp_path / "other.onnx")
    found = hookcli.compare(str(file), x, against=f"onnx={tmp_path / 'other.onnx'}", blame=True)
    assert found.document().culprits == ("2",)


def test_a_relu_that_a_file_lacks_is_to_blame_and_not_the_layer_after_it(tmp_path):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)
    net, x = nn.Sequential(*layers).eval(), torch.rand(1, 3, 8, 8)
    other = nn.Sequential(*layers[:2], nn.Identity(), layers[3]).eval()
    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(other, (x,)), file)
    document = hookcli.compare(net, x, against=f"torch-export={file}", blame=True).document()
    assert document.culprits == ("2",)
    assert "2 (ReLU) is only in A" in document.blame


class Tokens(nn.Module):
    """Linear layers of three axes, which an exporter writes as a product and a sum."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x.flatten(2))))


def test_a_linear_layer_that_a_quantizer_took_apart_is_not_to_blame(tmp_path):
    """A product without the bias is not the output of the layer."""
    torch.manual_seed(0)
    document = quantize(Tokens().eval(), torch.rand(1, 3, 4, 4), tmp_path)
    assert document.culprits == ()
    assert all(row.rel_l2 is None or row.rel_l2 < 0.05 for row in document.layers)


@pytest.mark.parametrize(("match", "wrong"), [("id", True), ("order", False)])
def test_the_layouts_and_merged_nodes_of_an_optimizer_are_not_to_blame(tmp_path, wrong, match):
    """Its blocked convolutions have no values of A's; a ReLU that it merged is not missing."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Flatten()
    net = nn.Sequential(*layers, nn.Linear(16 * 36, 4), nn.Softplus()).eval()
    x = torch.rand(1, 3, 8, 8)
    other, plain, file = copy.deepcopy(net), tmp_path / "plain.onnx", tmp_path / "fast.onnx"
    other[0].weight.data *= 1 + wrong
    torch.onnx.export(other, (x,), plain, dynamo=True, external_data=False, verbose=False)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(file)
    ort.InferenceSession(plain, options)
    outcome = hookcli.compare(net, x, against=f"onnx={file}", blame=True, match=match).document()
    assert outcome.culprits == ()
    assert outcome.blame.startswith("no culprit: the file does not tell") is wrong


def test_a_layer_whose_channels_quantization_ruined_is_named(tmp_path):
    """One channel of the third convolution is 4,000 times the others."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), *(nn.Conv2d(16, 16, 3) for _ in range(5))).eval()
    net.get_parameter("2.weight").data[3] *= 4000
    x = torch.randn(1, 3, 24, 20)
    document = quantize(net, x, tmp_path, way="QDQ")
    assert document.culprits[0] == "2"
    (row,) = (row for row in document.layers if row.call_id == "2")
    assert row.own_rel_l2 < 0.05 < 0.5 < row.own_channel_median
    kept = quantize(net, x, tmp_path, way="QDQ", kept=document.keep.nodes_to_exclude)
    assert "2" not in kept.culprits


def test_only_another_function_is_a_fault_and_not_the_approximation_of_one(tmp_path):
    """ONNX Runtime's sigmoid is off by 1e-7, here of values of 1e-8."""
    torch.manual_seed(0)
    x, file = torch.randn(1, 3, 24, 20), tmp_path / "wrong.onnx"
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid()).eval()
    nn.init.constant_(net.get_parameter("0.bias"), -18.0)
    document = hookcli.compare(net, x, against="onnx", blame=True).document()
    (row,) = (row for row in document.layers if row.call_id == "(model)")
    assert document.culprits == ()
    assert row.rel_l2 > 1e-3
    nn.init.constant_(net.get_parameter("0.bias"), -2.0)
    other = nn.Sequential(net[0], nn.Hardsigmoid()).eval()
    torch.onnx.export(other, (x,), file, dynamo=True, external_data=False, verbose=False)
    document = hookcli.compare(net, x, against=f"onnx={file}", blame=True).document()
    assert document.culprits == ("1",)


def quantize(net, x, folder, exported=None, way="dynamic", kept=()):
    """Compare a model with its quantized file, or with that of another model."""
    plain, file = folder / "plain.onnx", folder / "quantized.onnx"
    options: Any = {"dynamo": True, "external_data": False, "input_names": ["x"]}
    torch.onnx.export(exported or net, (x,), plain, verbose=False, **options)
    if way == "dynamic":
        quantization.quantize_dynamic(plain, file)
    else:
        form = quantization.QuantFormat[way]
        options = {"quant_format": form, "nodes_to_exclude": list(kept)}
        quantization.quantize_static(plain, file, reader_of(x.numpy()), **options)
    return hookcli.compare(net, x, against=f"onnx={file}", blame=True).document()


def reader_of(pixels):
    """Return what gives the one picture to a quantizer."""
    left = [{"x": pixels}]
    kind = (quantization.CalibrationDataReader,)
    return type("Reader", kind, {"get_next": lambda _: left.pop() if left else None})()
