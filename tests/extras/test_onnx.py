"""``hookcli compare --against onnx``, against ONNX Runtime and the reference of ONNX by hand."""

from __future__ import annotations

import gc
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hookcli
from tests.extras.exports import export, hide_names

pytestmark = [
    pytest.mark.exports,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("nets"),
]
MERGED = [f"blocks.{n}.conv is merged into blocks.{n}.norm" for n in range(3)]


def test_every_call_is_compared_or_merged_or_left_out(compare):
    document = compare("nets.py:Net", "--against", "onnx", "--blame")
    assert document["culprits"] == []
    ids = [row["call_id"] for row in sorted(document["layers"], key=lambda row: row["order"])]
    block = ("norm", "relu", "relu#1")
    assert ids == [
        "stem",
        *(f"blocks.{n}.{name}" for n in range(3) for name in block),
        "fc",
        "(model)",
    ]
    assert [f"{each['call_id']} is {each['reason']}" for each in document["left_out"]] == [
        *MERGED,
        "drop is left out, since it changes nothing",
    ]
    assert max(row["rel_l2"] for row in document["layers"]) < 1e-6


def test_a_changed_weight_in_a_file_is_named(compare):
    """The bias of the merged convolution is changed by 1 % of its norm in the file alone."""
    onnx = pytest.importorskip("onnx")
    export("net.onnx")
    model = onnx.load("net.onnx")
    node = next(
        node
        for node in model.graph.node
        if any("'blocks.2.norm'" in each.value for each in node.metadata_props)
    )
    bias = next(each for each in model.graph.initializer if each.name == node.input[2])
    changed = onnx.numpy_helper.to_array(bias) * np.float32(1.01)
    bias.CopyFrom(onnx.numpy_helper.from_array(changed, bias.name))
    onnx.save(model, "changed.onnx")
    document = compare("nets.py:Net", "--against", "onnx=changed.onnx", "--blame", code=7)
    assert document["culprits"] == ["blocks.2.norm"]
    assert document["first"] == "blocks.2.norm"
    assert compare("nets.py:Net", "--against", "onnx=net.onnx", "--blame")["culprits"] == []


def test_a_file_of_the_older_exporter_has_the_names_of_the_model(compare):
    export("old.onnx", dynamo=False)
    export("new.onnx")
    old, new = (
        compare("nets.py:Net", "--against", f"onnx={name}.onnx", "--layers", "leaf", "--blame")
        for name in ("old", "new")
    )
    for document in (old, new):
        assert (document["equal"], document["culprits"]) == (True, [])
    ids, others = ([row["call_id"] for row in document["layers"]] for document in (old, new))
    assert sorted(ids) == sorted(others)
    assert old["left_out"] == new["left_out"]


def test_a_fault_in_a_file_of_the_older_exporter_is_named(compare):
    """The convolution with the BatchNorm in it is compared with the BatchNorm."""
    export("wrong.onnx", "wrong", dynamo=False)
    document = compare("nets.py:Net", "--against", "onnx=wrong.onnx", "--blame", code=7)
    assert document["culprits"] == ["blocks.1.norm"]
    pairs = {row["call_id"]: row["other_call_id"] for row in document["layers"]}
    assert pairs["blocks.1.norm"] == "blocks.1.conv"


def test_a_file_without_module_paths_is_paired_by_order(compare):
    export("old.onnx", dynamo=False)
    hide_names("old.onnx")
    document = compare(
        "nets.py:Net", "--against", "onnx=old.onnx", "--match", "order", "--blame", code=0
    )
    pairs = {row["call_id"]: row["other_call_id"] for row in document["layers"]}
    assert pairs["blocks.0.norm"] == "Conv_1"
    assert pairs["fc"].startswith("Gemm_")
    assert pairs["(model)"] == "(model)"
    assert document["culprits"] == []
    document = compare("nets.py:Net", "--against", "onnx=old.onnx")
    assert [row["call_id"] for row in document["layers"]] == ["(model)"]


@pytest.mark.parametrize(
    ("way", "name", "operations"),
    [
        ("onnx", "Folded", ["op:div#1", "op:div#2", "op:relu"]),
        ("onnx", "Normalized", ["op:normalize", "op:div"]),
        ("torch-export", "Normalized", ["op:normalize", "op:div"]),
    ],
)
def test_operations_are_paired_although_the_exporter_computes_them_otherwise(
    compare, way, name, operations
):
    words = ("--layers", "leaf,op:*", "--blame")
    document = compare(f"nets.py:{name}", "--against", way, *words)
    assert (document["equal"], document["culprits"]) == (True, [])
    rows = sorted(document["layers"], key=lambda row: row["order"])
    assert [row["call_id"] for row in rows if "op:" in row["call_id"]] == operations


def test_an_edit_cannot_be_exported(refused):
    words = ("--against", "onnx", "--against", "edit=stem:zero")
    assert refused("nets.py:Net", "a.npy", *words) == (
        2,
        "error: an edit changes a tensor while PyTorch runs, and onnx exports the model without it",
        "hint: write the change into the model's own code",
    )


@pytest.mark.parametrize("way", ["onnx", "torch-export"])
def test_several_outputs_are_paired_by_their_order(compare, way):
    document = compare("nets.py:Pair", "--against", way)
    assert {row["call_id"]: row["other_call_id"] for row in document["layers"]} == {
        "conv": "conv",
        "(model)[out]": "(model)[0]",
        "(model)[mean]": "(model)[1]",
    }


def convert_to_float16(file, out, **options):
    """Convert a file as onnxruntime does, with the inputs and outputs in float32."""
    onnx = pytest.importorskip("onnx")
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    model = onnx.load(file)
    onnx.save(float16.convert_float_to_float16(model, keep_io_types=True, **options), out)


def test_a_file_whose_inside_is_float16_has_the_tolerance_of_float16(compare):
    export("net.onnx")
    convert_to_float16("net.onnx", "io.onnx")
    document = compare("nets.py:Net", "--against", "onnx=io.onnx", "--layers", "fc")
    (output,) = (row for row in document["layers"] if row["call_id"] == "(model)")
    assert (output["other_dtype"], output["tolerance"]) == ("float32", 5e-3)
    assert 1e-5 < output["rel_l2"] < 5e-3
    document = compare("net.onnx", "--against", "onnx=io.onnx", "--blame")
    assert (document["culprits"], document["b"]) == ([], "net.onnx with onnx=io.onnx")
    assert {row["call_id"] for row in document["layers"]} > {"stem", "fc", "(model)"}


def test_the_nodes_to_keep_are_the_arguments_of_the_converters(compare):
    """The exported model is wrong at one norm, whose convolution is merged into one node."""
    onnx = pytest.importorskip("onnx")
    words = ("--against", "model=nets.py:wrong", "--against", "onnx", "--blame")
    document = compare("nets.py:Net", *words, "--keep-export", "kept.onnx", code=7)
    assert document["culprits"] == ["blocks.1.norm"]
    (name,) = document["keep"]["node_block_list"]
    assert document["keep"]["nodes_to_exclude"] == [name]
    (node,) = (node for node in onnx.load("kept.onnx").graph.node if node.name == name)
    assert node.op_type == "Conv"
    assert any("'blocks.1.norm'" in each.value for each in node.metadata_props)
    convert_to_float16("kept.onnx", "half.onnx", node_block_list=[name])
    kinds = {each.name: each.data_type for each in onnx.load("half.onnx").graph.initializer}
    assert kinds[node.input[1]] == onnx.TensorProto.FLOAT


def test_a_truncated_file_is_refused(refused):
    export("net.onnx")
    Path("cut.onnx").write_bytes(Path("net.onnx").read_bytes()[:1000])
    ended = refused("nets.py:Net", "a.npy", "--against", "onnx=cut.onnx")
    assert ended[0] == 4
    assert ended[1].startswith("error: 'cut.onnx' is damaged, or no ONNX file: ")
    assert ended[2] == "hint: export the model again"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"location": "gone"}, "the weights of 'odd.onnx' are missing: 'gone'"),
        ({"location": "../w.bin"}, "'odd.onnx' has weights outside its folder, in '../w.bin'"),
        ({"location": "w\0.bin"}, ""),
        ({"location": "w.bin", "offset": "-5"}, ""),
        ({"location": "w.bin", "length": str(10**12)}, ""),
        ({"offset": "0"}, ""),
    ],
)
@pytest.mark.parametrize("is_constant", [False, True])
def test_an_odd_location_of_weights_is_refused(run, fields, message, is_constant):
    onnx = pytest.importorskip("onnx")
    Path("w.bin").write_bytes(bytes(432))
    tensor = onnx.TensorProto(
        name="w", data_type=1, dims=[4, 3, 3, 3], data_location=onnx.TensorProto.EXTERNAL
    )
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=value)
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"])]
    if is_constant:
        nodes.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [onnx.helper.make_tensor_value_info("x", 1, (1, 3, 16, 16))],
        [onnx.ValueInfoProto(name="y")],
        [] if is_constant else [tensor],
    )
    Path("odd.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    ended = run("layers", "odd.onnx")
    assert ended.code == 4, ended.err
    assert len(ended.err.splitlines()) == 2
    assert message in ended.err


def test_a_file_of_another_size_is_refused(refused):
    export("net.onnx")
    np.save("b.npy", np.zeros((3, 8, 8), "f4"))
    ended = refused("nets.py:Net", "b.npy", "--against", "onnx=net.onnx")
    assert ended == (
        4,
        (
            "error: nets.py:Net with onnx=net.onnx: 'net.onnx' takes an input of the shape "
            "1x3x24x20, and the image has 1x3x8x8"
        ),
        "hint: choose the size with --size",
    )


def test_a_compiled_model_is_compared_and_its_fault_is_named(compare):
    document = compare("nets.py:Net", "--against", "compile", "--blame")
    assert document["culprits"] == []
    assert len(document["layers"]) == 16
    assert document["notes"][-1:] == [
        "the compiled model returns the tensors of its layers, which can change what is fused"
    ]
    words = ("--against", "model=nets.py:wrong", "--against", "compile", "--blame")
    assert compare("nets.py:Net", *words, code=7)["culprits"] == ["blocks.1.norm"]


@pytest.mark.parametrize(("way", "what"), [("onnx", "to ONNX"), ("torch-export", "the model")])
def test_the_module_that_an_exporter_refuses_is_named(refused, way, what):
    code, message, hint = refused("nets.py:Gated", "a.npy", "--against", way)
    assert (code, hint) == (4, f"hint: export it yourself, and name the file: {way}=FILE")
    assert f"{what}: gate (Choice): Could not guard on data-dependent expression" in message


def test_what_onnx_runtime_lacks_is_refused_in_its_words(refused):
    onnx = pytest.importorskip("onnx")
    export("net.onnx")
    model = onnx.load("net.onnx")
    model.graph.node[0].op_type = "Convolve"
    Path("net.onnx").write_bytes(model.SerializeToString())
    code, message, hint = refused("nets.py:Net", "a.npy", "--against", "onnx=net.onnx")
    assert (code, hint) == (
        4,
        "hint: export the model again, with operators that ONNX Runtime has",
    )
    assert message.startswith("error: ONNX Runtime cannot load 'net.onnx': ")


@pytest.mark.parametrize("way", ["onnx", "torch-export", "onnx=net.onnx"])
def test_calls_of_one_layer_in_a_row_are_told_apart(compare, way):
    """A file that others exported does not say so, but its function appears again."""
    export("net.onnx", "Repeated")
    document = compare("nets.py:Repeated", "--against", way, "--blame")
    assert (document["equal"], document["culprits"], document["left_out"]) == (True, [], [])
    ids = {row["call_id"]: row["other_call_id"] for row in document["layers"]}
    assert ids == {each: each for each in ("conv", "again", "again#1", "again#2", "(model)")}


def test_the_layers_behind_a_graph_break_have_their_own_names(compare):
    document = compare("nets.py:Broken", "--against", "compile", "--blame")
    assert (document["equal"], document["culprits"], document["left_out"]) == (True, [], [])
    ids = {row["call_id"] for row in document["layers"]}
    assert ids == {"conv", "halves.conv", "halves.act", "(model)"}


@pytest.mark.parametrize("way", ["onnx", "torch-export", "compile"])
def test_an_export_does_not_change_the_model_that_runs_as_a(compare, way):
    np.save("b.npy", np.load("a.npy") + 1)
    document = compare("nets.py:Keeping", "b.npy", "--layers", "all", "--against", way)
    assert [row["call_id"] for row in document["layers"]] == ["conv", "(model)"]
    assert (document["equal"], len(document["images"])) == (True, 2)


def test_an_export_is_kept_only_in_a_new_file(refused):
    Path("mine.onnx").write_bytes(b"mine")
    words = ("nets.py:Net", "a.npy", "--against", "onnx", "--keep-export")
    assert refused(*words, "mine.onnx") == (
        5,
        "error: 'mine.onnx' already exists",
        "hint: name another file",
    )
    assert Path("mine.onnx").read_bytes() == b"mine"
    assert refused(*words, "mine.txt")[:2] == (2, "error: onnx writes .onnx, not 'mine.txt'")
    assert refused(*words, "no/mine.onnx")[:2] == (5, "error: cannot write 'no/mine.onnx'")
    assert refused(*words, "new.onnx")[0] == 0
    names = {file.name for file in Path().iterdir()} - {"__pycache__", "cache"}
    assert names == {"nets.py", "a.npy", "mine.onnx", "new.onnx"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("torch-export",), "--against onnx and --against torch-export are two ways to run B"),
        (("channels-last",), "channels-last cannot be combined with onnx"),
        (("threads=1",), "threads cannot be combined with onnx"),
    ],
)
def test_what_cannot_be_combined_with_an_export_is_refused(refused, words, message):
    more = (word for each in words for word in ("--against", each))
    ended = refused("nets.py:Net", "a.npy", "--against", "onnx", *more)
    assert ended[:2] == (2, f"error: {message}")


def test_a_picture_that_takes_another_way_through_a_compiled_model_is_refused(run):
    for name, sign in (("one", 1), ("two", -1)):
        np.save(f"{name}.npy", np.full((3, 8, 8), sign, "f4"))
    ended = run("compare", "nets.py:Either", "one.npy", "two.npy", "--against", "compile")
    assert ended.code == 4
    assert "torch.compile traces the model in another way for this image than at first" in ended.err


class Silent(nn.Conv2d):
    def forward(self, pixels):
        super().forward(pixels)


def test_of_a_model_in_memory_no_temporary_folder_is_left_open(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        found = hookcli.compare(model, torch.rand(1, 3, 8, 8), against="onnx", blame=True)
        gc.collect()
    assert [each for each in caught if each.category is ResourceWarning] == []
    assert list(tmp_path.glob("hookcli-*")) == []
    assert (found.exit_code, len(found.rows)) == (0, 3)


def test_a_model_that_returns_nothing_is_named_by_its_class(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.compare(Silent(3, 4, 3).eval(), torch.rand(1, 3, 8, 8), against="onnx")
    assert caught.value.message == (
        "the model cannot be exported to ONNX: Silent returns nothing that it computes"
    )
    assert list(tmp_path.glob("hookcli-*")) == []
