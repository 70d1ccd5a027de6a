"""``hookcli golden``: one small file of a run, that tells later runs apart."""

from __future__ import annotations

import base64
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hookcli.comparison.golden import check_replaceable, render_golden
from hookcli.errors import OutputError
from hookcli.outside.documents import convert
from hookcli.records.golden import GoldenFile
from tests.toy_runs import ToyRun, array, run_of

PHOTOS = Path(__file__).parents[2] / "sample_images"
CAT, COFFEE = str(PHOTOS / "cat.png"), str(PHOTOS / "coffee.png")
SMALL = ("--weights", "random", "--size", "64", "--device", "cpu")
PLAIN = ("inspect", "resnet18", *SMALL, "--grids", "none", "--sketch")


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


def test_golden_of_a_run_and_golden_of_a_model_give_the_same_bytes(run):
    run(*PLAIN, CAT, COFFEE, "--layers", "conv,fc", "-o", "out")
    of_run = run("golden", "out")
    of_model = run("golden", "resnet18", CAT, COFFEE, *SMALL, "--layers", "conv,fc")
    assert of_run.code == of_model.code == 0
    assert of_run.out == of_model.out
    assert (of_run.err, of_model.err) == (
        "",
        "resnet18: 21 layers, 2 images\nwarning: the weights are RANDOM, as asked for\n",
    )
    without = "the output of the model is not in it; with --layers '(model)', it is\n"
    assert run("golden", "out", "-o", "golden.json") == (0, "golden.json\n", without)
    assert Path("golden.json").read_text() == of_run.out


def test_a_golden_file_says_what_the_run_depended_on(run):
    run(*PLAIN, CAT, "--layers", "conv1", "--seed", "3", "-o", "out")
    document, manifest = golden(run, "out"), json.loads(Path("out/manifest.json").read_bytes())
    assert " ".join(document) == (
        "schema_version kind sketch hookcli command model versions layers uncalled images skipped "
        "calls"
    )
    assert (document["schema_version"], document["kind"]) == (1, "golden")
    assert document["sketch"] == {"version": 1, "buckets": 67, "dtype": "float32"}
    assert " ".join(document["command"]) == (
        f"hookcli inspect resnet18 {CAT} --layers conv1 --weights random --seed 3 "
        "--device cpu --size 64 --grids none --sketch"
    )
    for fact in ("hookcli", "model", "versions", "layers", "uncalled", "skipped"):
        assert document[fact] == manifest[fact]
    (image,) = document["images"]
    assert list(image) == ["key", "file", "sha256", "width", "height", "pixels_shape", "note"]
    assert (image["key"], image["width"], image["height"]) == ("cat", 451, 300)
    assert image["pixels_shape"] == [1, 3, 64, 64]
    assert str(Path.cwd()) not in json.dumps(document)


NAMES = (
    "image call_id module_type side shape dtype mean std min max zero_fraction nan_count inf_count"
)


def test_a_call_has_the_figures_and_the_sketch_of_its_record(run):
    run(*PLAIN, CAT, COFFEE, "--layers", "layer1.0,conv", "--at", "both", "-o", "out")
    calls = golden(run, "out")["calls"]
    rows = pq.read_table("out/records.parquet").to_pylist()
    assert len(calls) == len(rows) == 2 * 2 * 21
    for call, row in zip(calls, rows, strict=True):
        assert list(call) == [*NAMES.split(), "sketch"]
        assert [call[name] for name in NAMES.split()] == [row[name] for name in NAMES.split()]
        assert base64.b64decode(call["sketch"]) == row["sketch"]
    order = [call["call_id"] for call in calls]
    assert order.index("layer1.0.conv2") < order.index("layer1.0") < order.index("layer1.1.conv1")


def test_figures_that_are_not_finite_are_null(run):
    run_of(conv=[math.nan, math.nan], fc=[math.inf, 4]).write("out")
    first, last = golden(run, "out")["calls"]
    assert (first["mean"], first["nan_count"], last["mean"], last["inf_count"]) == (None, 2, 4, 1)
    assert sum(each.any() for each in sketches_of({"calls": [first, last]}).values()) == 1


def test_each_fact_and_each_call_is_on_a_line_of_its_own(run):
    run_of(conv=[3, 4]).write("out")
    text = run("golden", "out").out
    document = json.loads(text)
    calls = [line for line in text.splitlines() if '"call_id"' in line]
    assert [json.loads(line.strip(" ,")) for line in calls] == document["calls"]
    assert '"kind": "golden",' in text.splitlines()
    assert ' "device": "cpu",' in text.splitlines()
    assert text.endswith("\n]\n}\n")
    assert text.isascii()
    assert render_golden(convert(document, GoldenFile)) == text


def test_a_run_that_saved_whole_tensors_has_a_golden_file_without_sketches(run):
    words = ("--layers", "conv1,avgpool,fc", "--save", "tensors", "--grids", "none")
    run("inspect", "resnet18", CAT, *SMALL, *words, "-o", "out")
    run("inspect", "resnet18", CAT, *SMALL, *words, "--sketch", "-o", "sketched")
    one, two = golden(run, "out"), golden(run, "sketched")
    made, taken = sketches_of(one), sketches_of(two)
    assert len(made) == 3
    for call in one["calls"]:
        key = call["image"], call["call_id"]
        size = math.prod(call["shape"]) * (call["mean"] ** 2 + call["std"] ** 2)
        assert np.linalg.norm(made[key] - taken[key]) < 1e-6 * math.sqrt(size)


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"kept": "nothing"}, ""),
        ({"command": ("--pool", "mean")}, ", and its tensors only with --pool"),
    ],
)
def test_a_run_without_sketches_and_whole_tensors_has_no_golden_file(run, facts, what):
    replace(run_of(conv=[3, 4]), **facts).write("out")
    message = f"error: the run in 'out' kept no sketches{what}\n"
    hint = "hint: run hookcli inspect again, with --sketch\n"
    assert run("golden", "out", "-o", "golden.json") == (2, "", message + hint)
    assert not Path("golden.json").exists()


def test_a_golden_file_is_replaced_and_another_file_is_not(run):
    run_of(conv=[3, 4]).write("out")
    assert run("golden", "out", "-o", "new/golden.json").code == 0
    whole = Path("new/golden.json").read_bytes()
    document = json.loads(whole)
    Path("new/golden.json").write_text(json.dumps(document | {"hookcli": "0.0.1"}, indent=4))
    assert run("golden", "out", "-o", "new/golden.json")[:2] == (0, "new/golden.json\n")
    assert Path("new/golden.json").read_bytes() == whole
    for text in ("", "[1]", json.dumps(document | {"kind": "silver"}), '{"kind": "golden"}'):
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


def test_a_golden_file_takes_the_place_of_no_link_folder_or_file_of_a_run(run):
    """hookcli says so before the model runs."""
    run_of(conv=[3, 4]).write("out")
    Path("link.json").symlink_to("golden.json")
    for name, message in (
        ("link.json", "'link.json' is a link, which is never followed"),
        ("out", "'out' is a folder"),
        ("out/layers.csv", "'out/layers.csv' is a file of the run in "),
    ):
        ended = run("golden", "no-such-model", CAT, "-o", name, "--overwrite")
        assert ended.code == 5
        assert ended.err.startswith(f"error: {message}")


def test_only_the_beginning_of_an_existing_file_is_read_and_a_pipe_is_not(run):
    run_of(conv=[3, 4]).write("out")
    with Path("golden.json").open("w") as file:
        file.write('{\n"schema_version": 1,\n"kind": "golden",\n')
        file.truncate(1 << 40)  # more than any memory holds; on disk it is a hole
    assert run("golden", "out", "-o", "golden.json").code == 0
    assert json.loads(Path("golden.json").read_bytes())["kind"] == "golden"
    os.mkfifo("pipe")
    for name in ("pipe", "/dev/full"):
        with pytest.raises(OutputError, match="is a device or a pipe, not a regular file"):
            check_replaceable(Path(name), overwrite=True)


def test_a_gradient_that_is_missing_has_a_reason_and_no_sketch(run):
    values = {"grad_input:conv": array([0, 0]), "grad_output:conv": array([3, 4])}
    reasons = {"grad_input:conv": "the gradient of the image was not requested"}
    ToyRun({"cat": values}, reasons=reasons).write("out")
    absent, made = golden(run, "out")["calls"]
    assert (absent["mean"], absent["sketch"]) == (None, None)
    assert absent["reason"] == reasons["grad_input:conv"]
    assert len(base64.b64decode(made["sketch"])) == 268
    assert "reason" not in made


def test_skipped_images_end_with_6_and_are_listed(run):
    Path("bad.png").write_text("no picture")
    ended = run("golden", "resnet18", CAT, "bad.png", *SMALL, "--layers", "conv1", "-o", "g.json")
    assert (ended.code, ended.out) == (6, "g.json\n")
    document = json.loads(Path("g.json").read_bytes())
    assert [image["key"] for image in document["images"]] == ["cat"]
    assert [each["file"] for each in document["skipped"]] == ["bad.png"]
    assert "skipped 'bad.png'" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["net"], 2, "there is no folder 'net', and no image was given"),
        (["out", "--device=auto"], 2, "--device needs a model and images, but 'out' is a run's"),
        (["resnet18", "none.png"], 3, "no image can be used: 'none.png' does not exist"),
    ],
)
def test_what_is_no_run_and_no_model_is_refused(run, words, code, message):
    run_of(conv=[3, 4]).write("out")
    ended = run("golden", *words)
    assert (ended.code, ended.out, f"error: {message}" in ended.err) == (code, "", True)
