"""``hookcli compare --against torch-export``: programs of torch.export, module by module."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

NETS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm(self.conv(x)))
        out += x
        return self.relu(out)


class Net(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 1)
        self.block, self.drop, self.fc = Block(), nn.Dropout(0.5), nn.Linear(4, 2)
        self.block.norm.eps = eps

    def forward(self, x):
        seen = self.block(self.stem(x)).mean((2, 3))
        return {"first": x.mean((1, 2, 3)), "out": self.fc(self.drop(seen))}


def wrong():
    return Net(eps=0.1)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        x = self.conv(x)
        return x * 2 if x.sum() > 0 else x
"""
WORDS = ("a.npy", "--device", "cpu", "--format", "json")


pytestmark = pytest.mark.exports


@pytest.fixture(autouse=True)
def nets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)
    np.save("a.npy", np.random.default_rng(0).normal(size=(3, 6, 5)).astype("f4"))


@pytest.fixture
def compare(run):
    def command(model, *words, code=0):
        ended = run("compare", model, *WORDS, *words)
        assert ended.code == code, ended.err
        return json.loads(ended.out)

    return command


def test_every_call_and_every_output_is_the_same(compare):
    document = compare("nets.py:Net", "--against", "torch-export")
    assert {row["call_id"]: row["rel_l2"] for row in document["layers"]} == dict.fromkeys(
        (
            *("stem", "block.conv", "block.norm", "block.relu", "block.relu#1", "drop", "fc"),
            *("(model)[first]", "(model)[out]"),
        ),
        0.0,
    )
    assert document["left_out"] == []
    assert {"name": "runner", "a": "PyTorch", "b": "torch-export"} in document["changed"]


def test_a_fault_is_named_in_the_exported_program(compare):
    words = ("--against", "model=nets.py:wrong", "--against", "torch-export", "--blame")
    document = compare("nets.py:Net", *words, code=7)
    assert document["culprits"] == ["block.norm"]


def test_a_program_that_was_kept_is_read_again(compare):
    compare("nets.py:Net", "--against", "torch-export", "--keep-export", "net.pt2")
    document = compare("nets.py:Net", "--against", "torch-export=net.pt2", "--blame")
    assert document["equal"]
    assert document["culprits"] == []
    assert document["b"] == "nets.py:Net with torch-export=net.pt2"
    program = torch.export.load("net.pt2")
    pixels = torch.from_numpy(np.load("a.npy"))[None]
    net = import_module("nets").Net().eval()
    assert torch.equal(program.module()(pixels)["out"], net(pixels)["out"])


def refused(run, *words):
    ended = run("compare", *words, "--device", "cpu")
    lines = ended.err.splitlines()
    said = [line for line in lines if not line.startswith("warning: ")]
    return (ended.code, *said)


def test_a_model_that_cannot_be_exported_is_refused_in_the_exporters_words(run):
    code, message, hint = refused(run, "nets.py:Branches", "a.npy", "--against", "torch-export")
    assert code == 4
    assert message.startswith("error: torch.export cannot export the model: ")
    assert hint.startswith("hint: ")


def test_a_damaged_file_is_refused(run):
    Path("net.pt2").write_bytes(b"PK nothing")
    code, message, hint = refused(run, "nets.py:Net", "a.npy", "--against", "torch-export=net.pt2")
    assert code == 4
    assert message.startswith("error: 'net.pt2' is damaged, or no exported program: ")
    assert hint == "hint: make it with torch.export.save"


def test_a_missing_file_is_refused(run):
    ended = refused(run, "nets.py:Net", "a.npy", "--against", "torch-export=no.pt2")
    assert ended == (4, "error: cannot read 'no.pt2': No such file or directory")


@pytest.mark.parametrize(
    "words", [("--against", "dtype=bfloat16"), ("--against", "torch-export=net.pt2")]
)
def test_only_an_export_can_be_kept(run, words):
    code, message, _ = refused(run, "nets.py:Net", "a.npy", *words, "--keep-export", "net.pt2")
    assert (code, message) == (2, "error: --keep-export needs a model to export")
