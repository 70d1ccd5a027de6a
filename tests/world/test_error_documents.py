"""Errors as a program reads them on stdout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import hookcli
from hookcli import errors
from hookcli.verbs.schema import make_schema
from tests.toy_models import SMALL_NET

SCHEMA = Draft202012Validator(make_schema("error"))
CPU = ("--device", "cpu")
NET = ("inspect", "net.py:Net", "pixels.npy", *CPU, "-q")

# The words of a command, its exit code, and what the message and the hint have in them.
ERRORS = {
    "an unknown option": ([*NET, "--wat"], 2, "No such option: --wat", "hookcli inspect --help"),
    "no image": (["inspect", "net.py:Net"], 2, "Missing argument", "hookcli inspect net.py:Net"),
    "a number that is none": ([*NET, "--size", "x"], 2, "--size", "--help"),
    "no model": (["inspect", "resnet81", "pixels.npy"], 2, "'resnet81'", "did you mean"),
    "no layer": ([*NET, "--layers", "qqqqqq"], 2, "no layer matches", "hookcli layers MODEL"),
    "a seed": ([*NET, "--seed", "-1"], 2, "--seed must be from 0 to 2**63 - 1", ""),
    "an edit": ([*NET, "--edit", "conv:zerro"], 2, "--edit 'conv:zerro'", "zero"),
    "a gradient": ([*NET, "--edit", "grad_output:conv:zero"], 2, "gradient", "hookcli gradients"),
    "no picture": (["inspect", "net.py:Net", "no.png", *CPU], 3, "no image can be used", "photo"),
    "a model that fails": (["inspect", "net.py:Breaks", "pixels.npy", *CPU], 4, "model failed", ""),
    "a file in the way": ([*NET, "-o", "net.py"], 5, "is a file", "another folder with -o"),
}


@pytest.fixture(autouse=True)
def inputs():
    Path("net.py").write_text(SMALL_NET)
    np.save("pixels.npy", np.ones((3, 2, 2), np.float32))


@pytest.mark.parametrize(
    ("name", "output_format"), [*((name, "json") for name in ERRORS), ("no image", "jsonl")]
)
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


def test_an_interrupt_is_a_document_too(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hookcli.networks.catalog.list_catalog", interrupt)
    ended = run("models", "--format", "json")
    error = {"code": 130, "message": "interrupted", "hint": ""}
    assert (ended.code, json.loads(ended.out)["error"]) == (130, error)


def test_an_unfinished_document_is_not_followed_by_another(run, monkeypatch):
    from hookcli.outside import json_text

    whole = json_text.render_pieces

    def fail_after_a_piece(_document):
        yield "{"
        monkeypatch.setattr(json_text, "render_pieces", whole)  # an error document can be written
        raise hookcli.errors.OutputError("the rest is missing")

    monkeypatch.setattr(json_text, "render_pieces", fail_after_a_piece)
    ended = run("models", "--format", "json")
    assert (ended.code, ended.out) == (5, "{")


def test_every_exit_code_of_an_error_is_shown():
    codes = {kind.exit_code for kind in vars(errors).values() if is_error_with_a_code(kind)}
    assert {code for _, code, *_ in ERRORS.values()} == codes - {errors.DONE, errors.INTERRUPTED}


def is_error_with_a_code(kind):
    return isinstance(kind, type) and hasattr(kind, "exit_code")
