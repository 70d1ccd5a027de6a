"""Commands with the file of a model: ``hookcli inspect net.onnx`` and ``net.pt2``."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

import hookcli
from tests.cluster.fake_ray import FakeRay, put_in_place
from tests.extras.exports import export, make, save_program
from tests.world.test_folders import assert_same_folders

pytestmark = [
    pytest.mark.exports,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("nets"),
]
BLOCKS = [f"blocks.{n}" for n in range(3)]


@pytest.fixture
def inspect(run):
    """Run ``inspect`` on a file, and return the mean of each call, by call id."""

    def command(file, *words, images=("a.npy",)):
        ended = run("inspect", file, *images, *words, "--grids", "none", "--format", "json")
        assert ended.code == 0, ended.err
        return {row["call_id"]: row["mean"] for row in json.loads(ended.out)["layers"]}

    return command


def hooked(*names):
    """Return the mean output of the last call of each module of the network, by plain hooks."""
    net, means = make(), {}
    for name in names:
        net.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output, name=name: means.update({name: float(output.mean())})
        )
    with torch.no_grad():
        net(torch.from_numpy(np.load("a.npy"))[None])
    return means


def test_an_onnx_file_shows_what_the_modules_returned(inspect):
    export("net.onnx")
    shown = inspect("net.onnx", "--layers", "stem,blocks.*.norm,blocks,fc")
    norms = [f"{block}.norm" for block in BLOCKS]
    expected = hooked("stem", "blocks", "fc")
    assert list(shown) == ["stem", "blocks", *norms, "fc"]
    assert {name: shown[name] for name in expected} == pytest.approx(expected, abs=1e-6)


def test_a_program_shows_what_the_modules_returned(inspect):
    save_program("net.pt2")
    shown = inspect("net.pt2", "--layers", "conv,linear,op:gelu,(model)")
    convs = [f"{block}.conv" for block in BLOCKS]
    assert list(shown) == ["(model)", "stem", *convs, "op:gelu", "fc"]
    expected = hooked("stem", *convs, "fc")
    assert {name: shown[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert shown["(model)"] == shown["fc"]


def run_by_hand(file, pixels):
    """Return the output of the last node of each module, by the module's path, by ONNX Runtime."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model = onnx.load(file)
    values = {}
    for node in model.graph.node:
        scopes = {each.key: each.value for each in node.metadata_props}
        for path in ast.literal_eval(scopes["pkg.torch.onnx.name_scopes"])[1:-1]:
            values[path] = node.output[0]
    known = {each.name for each in model.graph.output}
    for name in {*values.values()} - known:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [*values.values()]
    arrays = session.run(names, {session.get_inputs()[0].name: pixels})
    return dict(zip(values, arrays, strict=True))


def test_the_tensors_of_a_file_are_those_of_onnx_runtime_by_hand(run):
    """A block that is called once returns what its last node returns."""
    pixels = torch.rand(1, 3, 64, 64)
    with contextlib.redirect_stdout(None):
        net = torchvision.models.mobilenet_v3_small().eval()
        torch.onnx.export(net, (pixels,), "big.onnx", dynamo=True, verbose=False)
    np.save("b.npy", pixels[0].numpy())
    words = ("--layers", "all", "--save", "tensors", "--grids", "none", "-o", "out")
    assert run("inspect", "big.onnx", "b.npy", *words).code == 0
    saved = hookcli.load_run("out")
    expected = run_by_hand("big.onnx", pixels.numpy())
    last = {call_id.partition("#")[0]: call_id for call_id in saved.calls}
    assert len(last) == len(expected) + 1  # the model itself
    for path, array in expected.items():
        found = saved.tensor(last[path], "b")
        assert np.linalg.norm(found - array) <= 1e-6 * np.linalg.norm(array), path


def test_layers_of_the_older_exporter_are_chosen_by_path_type_and_family(inspect):
    export("old.onnx", dynamo=False)
    convolutions = [f"{block}.conv" for block in BLOCKS]
    assert list(inspect("old.onnx")) == ["stem", *convolutions]
    assert list(inspect("old.onnx", "--layers", "Conv+BatchNorm")) == convolutions
    assert list(inspect("old.onnx", "--layers", "stem,linear")) == ["stem", "fc"]


def test_two_files_and_the_model_have_the_same_golden_values(run):
    export("net.onnx")
    save_program("net.pt2")
    words = ("a.npy", "--layers", "leaf")
    for model in ("net.onnx", "net.pt2", "nets.py:Net"):
        assert run("golden", model, *words, "-o", f"{model[-4:]}.json").code == 0
    for one, two in (("onnx", ":Net"), (":Net", "onnx"), (":Net", ".pt2")):
        ended = run("diff", f"{one}.json", f"{two}.json", "--format", "json")
        document = json.loads(ended.out)
        assert (ended.code, document["equal"]) == (0, True)
        reasons = {each["call_id"]: each["reason"] for each in document["left_out"]}
        merged = {f"{block}.conv": f"merged into {block}.norm" for block in BLOCKS}
        idle = {"drop": "left out, since it changes nothing"}
        assert reasons == (merged | idle if "onnx" in (one, two) else {})


def test_the_layers_of_a_file_are_listed(run):
    export("net.onnx")
    ended = run("layers", "net.onnx", "--layers", "conv,blocks.0", "--ops", "--format", "csv")
    rows = {row["call_id"]: row for row in csv.DictReader(io.StringIO(ended.out))}
    assert list(rows) == [
        "stem",
        "blocks.0",
        "blocks.0.norm",
        "blocks.0/op:add",
        *(f"blocks.{n}.norm" for n in (1, 2)),
    ]
    assert rows["stem"]["params"] == str(8 * 3 * 9 + 8)
    assert rows["blocks.0"]["params"] == rows["blocks.0.norm"]["params"] == str(8 * 8 * 9 + 8)
    assert (rows["stem"]["shape"], rows["stem"]["layout"]) == ("1x8x12x10", "NCHW")
    assert rows["stem"]["flops"] == str(2 * 8 * 27 * 12 * 10)


def test_photos_of_a_folder_go_through_one_at_a_time_and_a_run_is_resumed(run, tmp_path):
    """The file fixes a batch of one picture of 24 by 20 pixels."""
    export("net.onnx")
    (tmp_path / "photos").mkdir()
    for number in range(3):
        Image.new("RGB", (40, 30 + number), (0, 80 * number, 0)).save(f"photos/{number}.png")
    words = ("inspect", "net.onnx", "photos", "--layers", "leaf", "-o", "out")
    ended = run(*words)
    assert ended.code == 0, ended.err
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["model"]["input_shape"] == [1, 3, 24, 20]
    assert manifest["model"]["preprocessing"].startswith("resized to 24x20 pixels (bilinear)")
    rows = list(csv.DictReader(io.StringIO(Path("out/layers.csv").read_text())))
    assert [row["images"] for row in rows] == ["3"] * len(rows)
    assert run(*words, "--resume").err.splitlines() == ["the run in 'out' is complete"]
    export("net.onnx", "wrong")
    again = run(*words, "--resume")
    assert again.code == 2
    assert "with other weights: sha256" in again.err


def test_weights_beside_a_file_are_part_of_its_hash(run):
    onnx = pytest.importorskip("onnx")
    hashes = []
    for factor in (1, 2):
        export("net.onnx")
        model = onnx.load("net.onnx")
        weight = next(each for each in model.graph.initializer if each.name == "fc.weight")
        scaled = factor * onnx.numpy_helper.to_array(weight)
        weight.CopyFrom(onnx.numpy_helper.from_array(scaled, "fc.weight"))
        onnx.save(model, "out.onnx", save_as_external_data=True, size_threshold=0, location="w")
        words = ("--grids", "none", "-o", "out", "--overwrite", "--layers", "fc")
        assert run("inspect", "out.onnx", "a.npy", *words).code == 0
        hashes.append(json.loads(Path("out/manifest.json").read_text())["model"]["sha256"])
        Path("w").unlink()
    assert hashes[0] != hashes[1]


def test_a_cluster_writes_the_run_folder_of_this_machine(run, tmp_path, monkeypatch):
    put_in_place(monkeypatch, FakeRay())
    export("net.onnx")
    (tmp_path / "many").mkdir()
    for number in range(40):
        np.save(f"many/{number:02}.npy", np.full((3, 24, 20), number, "f4"))
    words = ("inspect", "net.onnx", "many", "--layers", "leaf", "--mean", "0,0,0", "--std", "1,1,1")
    assert run(*words, "--threads", "1", "-o", "here").code == 0
    ended = run(*words, "--cluster", "auto", "--cluster-workers", "2", "-o", "there")
    assert ended.code == 0, ended.err
    assert_same_folders(Path("here"), Path("there"))


def test_pictures_are_prepared_as_for_another_model_but_in_the_size_of_the_file(run):
    export("net.onnx")
    Image.new("RGB", (40, 30)).save("photo.png")
    words = ("inspect", "net.onnx", "photo.png", "--grids", "none")
    assert "the file does not say how its images are prepared" in run(*words).err
    ended = run(*words, "--like", "resnet18", "-o", "out")
    assert (ended.code, "the file does not say" in ended.err) == (0, False)
    model = json.loads(Path("out/manifest.json").read_text())["model"]
    assert (model["task"], model["input_shape"]) == ("classification", [1, 3, 24, 20])
    assert "mean 0.485 0.456 0.406" in model["preprocessing"]


def test_what_a_file_cannot_do_is_refused(run):
    export("net.onnx")
    for words, message in {
        ("--weights", "random"): "--weights does not apply to 'net.onnx': the file fixes it",
        ("--device", "cuda"): "--device does not apply to 'net.onnx'",
        ("--provider", "tpu"): "ONNX Runtime has no provider 'tpu' here",
        ("--at", "input"): "--at needs the modules of a model, and net.onnx runs without them",
        ("--layers", "lstm"): "no layer matches 'lstm'",
    }.items():
        ended = run("inspect", "net.onnx", "a.npy", *words)
        assert ended.code == 2
        assert f"error: {message}\n" in ended.err
    ended = run("gradients", "net.onnx", "a.npy")
    assert ended.code == 2
    assert "error: gradients needs the modules of a model" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--like", "resnet18"), "--like resnet18 is for files of models"),
        (("--provider", "cpu"), "--provider cpu is for ONNX"),
        (("--input-layout", "NHWC"), "--input-layout NHWC is for files of models"),
    ],
)
def test_options_for_files_are_refused_for_other_models(run, words, message):
    ended = run("inspect", "nets.py:Net", "a.npy", *words)
    assert ended.code == 2
    assert f"error: {message}" in ended.err
