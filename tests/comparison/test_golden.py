"""``hookcli golden``: one small file of a run, that tells later runs apart. Not
tests/world/test_whole_outputs.py, of rendered output."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import signal
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hookcli.comparison.golden import render_golden
from hookcli.outside.documents import convert
from hookcli.records.golden import GoldenFile
from tests.processes import COMMAND, start

PHOTOS = Path(__file__).parents[2] / "sample_images"
CAT, COFFEE = str(PHOTOS / "cat.png"), str(PHOTOS / "coffee.png")
SMALL = ("--weights", "random", "--size", "64", "--device", "cpu")
PLAIN = ("inspect", "resnet18", *SMALL, "--grids", "none", "--sketch")

NET = """
import torch
from torch import nn


class Net(nn.Module):
    '''Twice the pixels, and of these a value that is not finite.'''

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Identity(), nn.Identity())
        self.unused = nn.Identity()

    def forward(self, x):
        x = self.block(x * 2)
        return self.block[0](x / 0)
"""


@pytest.fixture
def own_temporary_folder(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def golden(run, *words):
    """The document that a command prints."""
    ended = run("golden", *words)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def sketches_of(document):
    return {
        (call["image"], call["call_id"]): np.frombuffer(base64.b64decode(call["sketch"]), "<f4")
        for call in document["calls"]
    }


def norm_of(call):
    return math.sqrt(math.prod(call["shape"]) * (call["mean"] ** 2 + call["std"] ** 2))


def test_golden_of_a_run_and_golden_of_a_model_give_the_same_bytes(run, own_temporary_folder):
    run(*PLAIN, CAT, COFFEE, "--layers", "conv,fc", "-o", "out")
    of_run = run("golden", "out")
    of_model = run("golden", "resnet18", CAT, COFFEE, *SMALL, "--layers", "conv,fc")
    assert of_run.code == of_model.code == 0
    assert of_run.out == of_model.out
    assert (of_run.err, of_model.err) == (
        "",
        "resnet18: 21 layers, 2 images\nwarning: the weights are RANDOM, as asked for\n",
    )
    assert run("golden", "out", "-o", "golden.json") == (0, "golden.json\n", "")
    assert Path("golden.json").read_text() == of_run.out
    assert list(own_temporary_folder.glob("hookcli-*")) == []


def test_a_golden_file_says_what_the_run_depended_on(run):
    run(*PLAIN, CAT, "--layers", "conv1,layer1.0.relu", "--seed", "3", "-o", "out")
    document, manifest = golden(run, "out"), json.loads(Path("out/manifest.json").read_bytes())
    assert " ".join(document) == (
        "schema_version kind sketch hookcli command model versions layers uncalled images skipped "
        "calls"
    )
    assert document["schema_version"] == 1
    assert document["kind"] == "golden"
    assert document["sketch"] == {"version": 1, "buckets": 67, "dtype": "float32"}
    assert " ".join(document["command"]) == (
        f"hookcli inspect resnet18 {CAT} --layers conv1,layer1.0.relu --weights random --seed 3 "
        "--device cpu --size 64 --grids none --sketch"
    )
    for fact in ("hookcli", "model", "versions", "layers", "uncalled", "skipped"):
        assert document[fact] == manifest[fact]
    assert document["model"]["weights"] == "random (seed 3)"
    (image,) = document["images"]
    assert list(image) == ["key", "file", "sha256", "width", "height", "pixels_shape", "note"]
    assert (image["key"], image["width"], image["height"]) == ("cat", 451, 300)
    assert image["pixels_shape"] == [1, 3, 64, 64]
    assert str(Path.cwd()) not in json.dumps(document)


def test_a_call_has_the_figures_and_the_sketch_of_its_record(run):
    run(*PLAIN, CAT, COFFEE, "--layers", "layer1.0,conv", "--at", "both", "-o", "out")
    calls = golden(run, "out")["calls"]
    rows = pq.read_table("out/records.parquet").to_pylist()
    assert len(calls) == len(rows) == 2 * 2 * 21
    names = [
        "image",
        "call_id",
        "module_type",
        "side",
        "shape",
        "dtype",
        "mean",
        "std",
        "min",
        "max",
    ]
    names += ["zero_fraction", "nan_count", "inf_count"]
    for call, row in zip(calls, rows, strict=True):
        assert list(call) == [*names, "sketch"]
        assert [call[name] for name in names] == [row[name] for name in names]
        assert base64.b64decode(call["sketch"]) == row["sketch"]
    order = [call["call_id"] for call in calls]
    assert order.index("layer1.0.conv2") < order.index("layer1.0") < order.index("layer1.1.conv1")


def test_values_that_are_not_finite_are_null_and_uncalled_layers_are_reported(run):
    Path("net.py").write_text(NET)
    np.save("a.npy", np.zeros((3, 2, 2), np.float32))
    document = golden(run, "net.py:Net", "a.npy", "--layers", "leaf,block", "--device", "cpu")
    assert [call["call_id"] for call in document["calls"]] == [
        "block.0",
        "block.1",
        "block",
        "block.0#1",
    ]
    reason = "the model did not call it for this input"
    assert document["uncalled"] == [{"layer": "unused", "reason": reason}]
    first, last = document["calls"][0], document["calls"][-1]
    assert (first["mean"], first["nan_count"], last["mean"], last["nan_count"]) == (0, 0, None, 12)
    assert not sketches_of(document)["a", "block.0#1"].any()


def test_a_mean_that_no_number_holds_is_null(run):
    Path("net.py").write_text(NET.replace("x * 2", "x.double() + 1.7e308"))
    np.save("a.npy", np.zeros((3, 2, 2), np.float32))
    document = golden(run, "net.py:Net", "a.npy", "--layers", "block", "--device", "cpu")
    assert [(call["mean"], call["min"]) for call in document["calls"]] == [(None, 1.7e308)]


def test_each_fact_and_each_call_is_on_a_line_of_its_own(run):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    text = run("golden", "out").out
    document = json.loads(text)
    calls = [line for line in text.splitlines() if '"call_id"' in line]
    assert [json.loads(line.strip(" ,")) for line in calls] == document["calls"]
    assert '"kind": "golden",' in text.splitlines()
    assert ' "device": "cpu",' in text.splitlines()
    assert text.endswith("\n]\n}\n")
    assert text.isascii()
    assert render_golden(convert(document, GoldenFile)) == text


def test_what_changed_is_all_that_a_line_diff_shows(run):
    run(*PLAIN, CAT, "--layers", "conv", "-o", "one")
    run(*PLAIN, CAT, "--layers", "conv", "-o", "two", "--edit", "layer4.1.conv1:scale=2")
    one, two = (run("golden", folder).out.splitlines() for folder in ("one", "two"))
    changed = [line for line in two if line not in one]
    assert [re.findall('"(?:command|call_id)[^,]*', line)[0] for line in changed] == [
        '"command": ["hookcli"',
        '"call_id": "layer4.1.conv1"',
        '"call_id": "layer4.1.conv2"',
    ]


def test_all_convolutions_of_resnet34_take_less_than_40_kb(run):
    words = ("--weights", "random", "--device", "cpu", "--layers", "conv", "-o", "golden.json")
    assert run("golden", "resnet34", CAT, *words).code == 0
    text = Path("golden.json").read_text()
    calls = [line for line in text.splitlines() if '"call_id"' in line]
    assert len(calls) == 36
    assert len(text) < 40_000
    assert max(map(len, calls)) < 1000


def test_gradients_have_golden_files_too_and_say_why_there_is_none(run):
    words = ("--sketch", "--layers", "conv1,fc", "--grids", "none", "-o", "out")
    assert run("gradients", "resnet18", CAT, *SMALL, *words).code == 0
    calls = {call["call_id"]: call for call in golden(run, "out")["calls"]}
    assert len(base64.b64decode(calls["param:fc.bias"]["sketch"])) == 268
    absent = calls["grad_input:conv1"]
    assert (absent["mean"], absent["sketch"]) == (None, None)
    assert absent["reason"] == "the gradient of the image was not requested: use `input_grad`"
    assert "reason" not in calls["grad_output:fc"]


def test_a_run_that_saved_whole_tensors_has_a_golden_file_without_sketches(run):
    words = ("--layers", "conv1,avgpool,fc", "--save", "tensors", "--grids", "none")
    run("inspect", "resnet18", CAT, *SMALL, *words, "-o", "out")
    run("inspect", "resnet18", CAT, *SMALL, *words, "--sketch", "-o", "sketched")
    one, two = golden(run, "out"), golden(run, "sketched")
    made, taken = sketches_of(one), sketches_of(two)
    assert len(made) == 3
    for call in one["calls"]:
        key = call["image"], call["call_id"]
        assert np.linalg.norm(made[key] - taken[key]) < 1e-6 * norm_of(call)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((), "kept no sketches"),
        *(
            (
                ("--save", "tensors", *words),
                f"kept no sketches, and its tensors only with {words[0]}",
            )
            for words in (
                ("--pool", "mean"),
                ("--tensor-dtype", "float16"),
                ("--tensor-channels", "0-3"),
            )
        ),
    ],
)
def test_a_run_without_sketches_and_whole_tensors_has_no_golden_file(run, options, what):
    words = ("--layers", "conv1", "--grids", "none", "--no-sketch", *options, "-o", "out")
    run("inspect", "resnet18", CAT, *SMALL, *words)
    ended = run("golden", "out", "-o", "golden.json")
    assert ended == (
        2,
        "",
        f"error: the run in 'out' {what}\nhint: run hookcli inspect again, with --sketch\n",
    )
    assert not Path("golden.json").exists()


@pytest.mark.parametrize("layer", ["conv1", "layer3.1.conv2"])
def test_one_channel_changed_by_a_hundredth_shows_in_its_layer_first(run, layer):
    plain = golden(run, "resnet18", CAT, *SMALL, "--layers", "conv")
    words = ("--layers", "conv", "--edit", f"{layer}{{3}}:scale=1.01")
    changed = golden(run, "resnet18", CAT, *SMALL, *words)
    one, two = sketches_of(plain), sketches_of(changed)
    far = {
        call["call_id"]: np.linalg.norm(two["cat", call["call_id"]] - one["cat", call["call_id"]])
        / norm_of(call)
        for call in plain["calls"]
    }
    assert next(call_id for call_id, distance in far.items() if distance > 1e-6) == layer
    assert 1e-6 < far[layer] < 0.01


def test_a_golden_file_is_replaced_and_another_file_is_not(run):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    assert run("golden", "out", "-o", "new/golden.json").code == 0
    whole = Path("new/golden.json").read_bytes()
    document = json.loads(whole)
    Path("new/golden.json").write_text(json.dumps(document | {"hookcli": "0.0.1"}, indent=4))
    assert run("golden", "out", "-o", "new/golden.json") == (0, "new/golden.json\n", "")
    assert Path("new/golden.json").read_bytes() == whole
    for text in (
        "",
        "notes",
        "[1]",
        json.dumps(document | {"kind": "silver"}),
        '{"kind": "golden"}',
        "[" * 10_000,
    ):
        Path("notes.json").write_text(text)
        ended = run("golden", "out", "-o", "notes.json")
        assert ended == (
            5,
            "",
            (
                "error: 'notes.json' already exists and is not a golden file\n"
                "hint: replace it with --overwrite, or choose another -o\n"
            ),
        )
        assert Path("notes.json").read_text() == text
    assert run("golden", "out", "-o", "notes.json", "--overwrite").code == 0
    assert Path("notes.json").read_bytes() == whole
    assert run("golden", "out", "-o", "out").code == 5


def test_a_golden_file_never_takes_the_place_of_a_link(run):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    assert run("golden", "out", "-o", "golden.json").code == 0
    whole = Path("golden.json").read_bytes()
    Path("link.json").symlink_to("golden.json")
    for words in ((), ("--overwrite",)):
        ended = run("golden", "out", "-o", "link.json", *words)
        assert (ended.code, ended.err.splitlines()[0]) == (
            5,
            "error: 'link.json' is a link, which is never followed",
        )
    assert (Path("golden.json").read_bytes(), Path("link.json").is_symlink()) == (whole, True)


def test_only_the_beginning_of_an_existing_file_is_read(run):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    with Path("golden.json").open("w") as file:
        file.write('{\n"schema_version": 1,\n"kind": "golden",\n')
        file.truncate(1 << 40)  # more than any memory holds; on disk it is a hole
    assert run("golden", "out", "-o", "golden.json").code == 0
    assert json.loads(Path("golden.json").read_bytes())["kind"] == "golden"
    Path("other.json").touch()
    os.truncate("other.json", 1 << 40)
    assert run("golden", "out", "-o", "other.json").code == 5


@pytest.mark.parametrize(("name", "words"), [("pipe", ()), ("/dev/full", ("--overwrite",))])
def test_a_pipe_and_a_device_are_not_read_and_not_replaced(name, words):
    os.mkfifo("pipe")
    words = ["golden", "no-such-run", "-o", name, *words]
    process = start(COMMAND, *words, out="out.txt", err="err.txt")
    process.join(60)
    assert (process.exitcode, Path("out.txt").read_text(), Path("err.txt").read_text()) == (
        5,
        "",
        (
            f"error: {name!r} is a device or a pipe, not a regular file\n"
            "hint: name a file, or leave out -o to write to stdout\n"
        ),
    )
    assert Path("pipe").is_fifo()
    assert Path("/dev/full").is_char_device()


def test_a_file_that_may_not_be_replaced_is_reported_before_the_model_runs(run):
    Path("notes.json").write_text("notes")
    assert run("golden", "no-such-model", CAT, "-o", "notes.json").code == 5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written_ends_with_5(run):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    Path("closed").mkdir()
    Path("closed").chmod(0o500)
    assert run("golden", "out", "-o", "closed/golden.json").code == 5


def test_skipped_images_end_with_6_and_are_listed(run):
    Path("bad.png").write_text("no picture")
    ended = run("golden", "resnet18", CAT, "bad.png", *SMALL, "--layers", "conv1", "-o", "g.json")
    assert (ended.code, ended.out) == (6, "g.json\n")
    document = json.loads(Path("g.json").read_bytes())
    assert [image["key"] for image in document["images"]] == ["cat"]
    assert [each["file"] for each in document["skipped"]] == ["bad.png"]
    assert "skipped 'bad.png'" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-folder"], "there is no folder 'no-such-folder', and no image was given"),
        (["resnet18"], "there is no folder 'resnet18', and no image was given"),
        (
            ["out", "--layers", "fc"],
            "--layers needs a model and images, but 'out' is a run's folder",
        ),
        (
            ["out", "--layers", "conv"],
            "--layers needs a model and images, but 'out' is a run's folder",
        ),
        (["out", "--seed", "0"], "--seed needs a model and images, but 'out' is a run's folder"),
        (
            ["out", "--device=auto"],
            "--device needs a model and images, but 'out' is a run's folder",
        ),
        (
            ["out", "--model-arg", "a=1"],
            "--model-arg needs a model and images, but 'out' is a run's folder",
        ),
        (["."], "'.' is not the folder of a run"),
        (["resnet18", "no-such.png"], "no image can be used: 'no-such.png' does not exist"),
    ],
)
def test_what_is_no_run_and_no_model_is_refused(run, words, message):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    ended = run("golden", *words)
    assert ended.code == (3 if "no-such.png" in words else 2)
    assert ended.out == ""
    assert f"error: {message}" in ended.err


def test_a_manifest_that_lacks_a_fact_is_refused(run):
    run(*PLAIN, CAT, "--layers", "conv1", "-o", "out")
    manifest = json.loads(Path("out/manifest.json").read_bytes())
    del manifest["versions"]
    Path("out/manifest.json").write_text(json.dumps(manifest))
    ended = run("golden", "out")
    assert (ended.code, ended.err.splitlines()[0]) == (
        2,
        "error: 'out/manifest.json' is damaged: it lacks 'versions'",
    )


BROKEN_OFF = """
import os, signal, tempfile
from pathlib import Path
from torch import nn

class Net(nn.Conv2d):
    def __init__(self):
        super().__init__(3, 4, 3)
    def forward(self, x):
        files = Path(tempfile.gettempdir()).glob("hookcli-*/run.json")
        (os.environ["FOLDER"],) = (f.parent.name for f in files)
        signal.raise_signal(int(os.environ["SIGNAL"]))
        return super().forward(x)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_run_that_is_broken_off(
    run, own_temporary_folder, interruptible, monkeypatch, number
):
    Path("net.py").write_text(BROKEN_OFF)
    np.save("a.npy", np.zeros((3, 8, 8), np.float32))
    monkeypatch.setenv("SIGNAL", str(int(number)))
    monkeypatch.setenv("FOLDER", "")
    ended = run("golden", "net.py:Net", "a.npy", "--device", "cpu", "-o", "golden.json")
    assert (ended.code, ended.out) == (128 + number, "")
    assert os.environ["FOLDER"]
    assert os.environ["FOLDER"] not in ended.err
    assert list(own_temporary_folder.glob("hookcli-*")) == []
    assert not Path("golden.json").exists()


def test_nothing_is_left_of_a_run_that_fails(run, own_temporary_folder):
    Path("bad.png").write_text("no picture")
    assert run("golden", "resnet18", "bad.png", *SMALL).code == 3
    Path("net.py").write_text(NET.replace("x / 0", "x @ 0"))
    np.save("a.npy", np.zeros((3, 2, 2), np.float32))
    ended = run("golden", "net.py:Net", "a.npy", "--layers", "leaf", "--device", "cpu")
    assert ended.code == 4
    assert "hookcli-" not in ended.err
    assert list(own_temporary_folder.glob("hookcli-*")) == []


def test_an_unwritable_temporary_file_is_reported_without_its_folder(
    run, own_temporary_folder, monkeypatch
):
    """Another's file is put into the folder as soon as it is made."""
    made = tempfile.mkdtemp

    def taken(*words, **options):
        folder = made(*words, **options)
        Path(folder, "notes").write_text("of someone else")
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", taken)
    ended = run("golden", "resnet18", CAT, *SMALL, "--layers", "conv1")
    assert ended.code == 5
    assert "hookcli-" not in ended.err
    assert "error: cannot write temporary files" in ended.err
    assert list(own_temporary_folder.glob("hookcli-*")) == []


def test_no_temporary_folder_at_all_is_an_error_of_one_line(run, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "no/such/folder")
    ended = run("golden", "resnet18", CAT, *SMALL, "--layers", "conv1")
    assert (ended.code, ended.err) == (
        5,
        (
            "error: cannot make a temporary folder: No such file or directory\n"
            "hint: set TMPDIR to a folder with free space\n"
        ),
    )
