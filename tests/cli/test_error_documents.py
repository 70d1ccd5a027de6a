"""Errors as a program reads them on stdout, and as somebody sees them who called a function."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import hookcli
from hookcli import (
    FindingRequest,
    FolderRequest,
    GridStyle,
    ImageRequest,
    InspectConfig,
    ModelRequest,
    RunRequest,
)
from hookcli.cli.output.schema import make_schema
from hookcli.config import ClusterRequest, MachineRequest
from tests.toy_models import SMALL_NET

SCHEMA = Draft202012Validator(make_schema("error"))
CPU = ("--device", "cpu")
NET = ("inspect", "net.py:Net", "pixels.npy", *CPU, "-q")

# The words of a command, its exit code, and what the message and the hint have in them.
ERRORS = {
    "an unknown option": ([*NET, "--wat"], 2, "No such option: --wat", "hookcli inspect --help"),
    "no image": (["inspect", "net.py:Net"], 2, "Missing argument", "hookcli inspect net.py:Net"),
    "an unknown command": (["inspekt", "net.py:Net"], 2, "No such command: inspekt", "inspect"),
    "a number that is none": ([*NET, "--size", "x"], 2, "--size", "--help"),
    "no model": (["inspect", "resnet81", "pixels.npy"], 2, "'resnet81'", "did you mean"),
    "no layer": ([*NET, "--layers", "qqqqqq"], 2, "no layer matches", "hookcli layers MODEL"),
    "all are excluded": ([*NET, "--exclude", "all"], 2, "--exclude all leaves", "exclude"),
    "a seed": ([*NET, "--seed", "-1"], 2, "--seed must be from 0 to 2**63 - 1", ""),
    "a rule": ([*NET, "--fail-on", "luck"], 2, "no rule is called 'luck'", "one of: "),
    "an edit": ([*NET, "--edit", "conv:zerro"], 2, "--edit 'conv:zerro'", "zero"),
    "a prune": ([*NET, "--prune", "conv"], 2, "--prune 'conv': it does", "conv=0.3"),
    "a gradient": ([*NET, "--edit", "grad_output:conv:zero"], 2, "gradient", "hookcli gradients"),
    "pooled": ([*NET, "--pool", "mean"], 2, "--pool, --tensor-dtype", "add --save tensors"),
    "a cluster": ([*NET, "--cluster-workers", "2"], 2, "--cluster-workers", "--cluster auto"),
    "no run": (["report", "nothing"], 2, "nothing", ""),
    "a glob": (["models", "zzz*"], 2, "'zzz*'", "hookcli models"),
    "no picture": (["inspect", "net.py:Net", "no.png", *CPU], 3, "no image can be used", "photo"),
    "a model that fails": (["inspect", "net.py:Breaks", "pixels.npy", *CPU], 4, "model failed", ""),
    "no weights": (["inspect", "resnet18", "pixels.npy", "--weights", "no.pth"], 4, "no.pth", ""),
    "a file in the way": ([*NET, "-o", "net.py"], 5, "is a file", "another folder with -o"),
}
REQUEST = RunRequest(ModelRequest("net.py:Net", device="cpu"), ImageRequest(("pixels.npy",)))
# What Python users get wrong, and what the message and the hint have in them.
CALLS = {
    "no layer": (
        InspectConfig(RunRequest(REQUEST.model, REQUEST.images, ("qqqqqq",))),
        ("no layer matches 'qqqqqq'", "list them with: `survey_layers(MODEL)`"),
    ),
    "a seed": (
        InspectConfig(RunRequest(ModelRequest("net.py:Net", seed=-1), REQUEST.images)),
        ("`seed` must be from 0 to 2**63 - 1, not -1", ""),
    ),
    "a tile": (
        InspectConfig(REQUEST, grids=GridStyle(tile=1)),
        ("`grids.tile` must be at least 8, not 1", ""),
    ),
    "a word": (
        InspectConfig(REQUEST, grids=GridStyle("all")),  # type: ignore[arg-type]
        ("`grids.mode` cannot be 'all'", "one of: auto, layers, sheet, none"),
    ),
    "an edit": (
        InspectConfig(RunRequest(REQUEST.model, REQUEST.images, edits=("conv",))),
        ("`edits` 'conv': at position ", ""),
    ),
    "a threshold": (
        InspectConfig(REQUEST, findings=FindingRequest(rules=(("untrained", 1.0),))),
        ("untrained has no threshold", "`fail_on=('untrained',)` ends with code 7"),
    ),
    "a cluster": (
        InspectConfig(REQUEST, machine=MachineRequest(2, cluster=ClusterRequest("auto"))),
        ("inspect_images runs on this machine alone", "leave `cluster` out"),
    ),
    "a file in the way": (
        InspectConfig(REQUEST, FolderRequest(Path("net.py"))),
        ("'net.py' is a file, not a folder", "choose another folder with `out`"),
    ),
}


@pytest.fixture(autouse=True)
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(SMALL_NET)
    np.save("pixels.npy", np.ones((3, 2, 2), np.float32))


@pytest.mark.parametrize("output_format", ["json", "jsonl"])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_a_document_on_stdout_too(run, name, output_format):
    words, code, message, hint = ERRORS[name]
    ended = run(*words, "--format", output_format)
    assert ended.code == code
    document = json.loads(ended.out)
    SCHEMA.validate(document)
    error = document["error"]
    assert error["code"] == code
    assert message in error["message"]
    assert hint in error["hint"]
    lines = [line for line in ended.err.splitlines() if line.startswith(("error: ", "hint: "))]
    shown = [f"error: {error['message']}", f"hint: {error['hint']}"]
    assert lines == (shown if error["hint"] else shown[:1])
    assert (ended.out.count("\n") == 1) == (output_format == "jsonl")


def test_without_json_an_error_is_on_stderr_alone(run):
    assert [run(*words).out for words, *_ in (ERRORS["a seed"], ERRORS["an unknown option"])] == [
        "",
        "",
    ]
    assert run(*NET, "--seed", "-1", "--format", "md").out == ""


def test_the_last_format_counts_however_it_is_given(run):
    assert run(*NET, "--wat", "--format", "csv", "--format=json").out.startswith("{")
    assert run(*NET, "--wat", "--format", "json", "--format=csv").out == ""


def test_an_interrupt_is_a_document_too(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hookcli.models.sources.list_catalog", interrupt)
    ended = run("models", "--format", "json")
    error = {"code": 130, "message": "interrupted", "hint": ""}
    assert (ended.code, json.loads(ended.out)["error"]) == (130, error)


def test_a_document_that_was_begun_is_not_followed_by_another(run, monkeypatch):
    from hookcli.outside import json_text

    def fail_after_a_piece(_document):
        yield "{"
        raise hookcli.errors.OutputError("the rest is missing")

    monkeypatch.setattr(json_text, "render_pieces", fail_after_a_piece)
    ended = run("models", "--format", "json")
    assert (ended.code, ended.out) == (5, "{")


@pytest.mark.parametrize("name", CALLS)
def test_somebody_who_called_a_function_reads_the_words_of_python(name):
    config, (message, hint) = CALLS[name]
    with pytest.raises(hookcli.HookcliError) as caught:
        hookcli.inspect_images(config)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
    assert "--" not in f"{caught.value.message} {caught.value.hint}"
