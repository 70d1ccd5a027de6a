"""Commands with models that are compiled, scripted or exported, or that call ``forward``."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from PIL import Image

CODE = """
import torch
import warnings
from torch import nn

warnings.simplefilter("ignore")

class Net(nn.Module):
    def __init__(self, change=lambda part: part):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Conv2d(3, 2, 1)
        self.b = change(nn.Sequential(nn.Conv2d(2, 2, 1)))

    def forward(self, x):
        return self.b(self.a(x))

class Direct(Net):
    def forward(self, x):
        return self.b.forward(self.a.forward(x))

class Growing(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.empty(0))

    def forward(self, x):
        if not self.low.numel():
            self.low.resize_(2)
        return super().forward(x)

def whole(): return torch.compile(Net(), backend="eager")
def part(): return Net(lambda part: torch.compile(part, backend="eager"))
def scripted(): return Net(torch.jit.script)
def all_scripted(): return torch.jit.script(Net())
def traced(): return torch.jit.trace(Net().eval(), torch.ones(1, 3, 8, 8))
def frozen(): return torch.jit.freeze(torch.jit.script(Net().eval()))
def exported(): return torch.export.export(Net().eval(), (torch.ones(1, 3, 8, 8),)).module()
"""
PLAIN = ("--size", "8", "--device", "cpu")
NOTE = "compiled: its layers are run in eager mode; the compiled one: --against compile"


@pytest.fixture(autouse=True)
def files(run):
    Path("net.py").write_text(CODE)
    Image.new("RGB", (8, 8), "red").save("red.png")


def rows_of(ended):
    assert ended.code == 0, ended.err
    return [
        {name: row[name] for name in ("call_id", "module_type", "mean", "std")}
        for row in csv.DictReader(io.StringIO(ended.out))
    ]


def inspect(run, name, *words):
    words = ("--grids", "none", "-o", name, "--format", "csv", *PLAIN, *words)
    return run("inspect", f"net.py:{name}", "red.png", *words)


@pytest.mark.parametrize("name", ["whole", "part", "Direct", "Growing"])
def test_a_model_has_the_rows_of_the_same_model_that_is_plain(run, name):
    plain = rows_of(inspect(run, "Net", "--layers", "all"))
    other = inspect(run, name, "--layers", "all")
    rows = rows_of(other)
    root = {"module_type": "Net"} if name in ("Direct", "Growing") else {}
    assert [row | root if row["call_id"] == "(model)" else row for row in rows] == plain
    assert (NOTE in other.err) == (name in ("whole", "part"))
    assert "not called" not in other.err


def test_the_list_of_layers_says_that_a_model_is_compiled(run):
    ended = run("layers", "net.py:part", "--size", "8", "--format", "json")
    assert ended.code == 0, ended.err
    assert NOTE in ended.err
    assert "_orig_mod" not in ended.out


def test_convolutions_inside_torchscript_are_said_to_be_there(run):
    ended = inspect(run, "scripted")
    assert [row["call_id"] for row in rows_of(ended)] == ["a"]
    assert "not called: b.0: its hooks are passed by: it is TorchScript\n" in ended.err


@pytest.mark.parametrize("name", ["all_scripted", "traced", "frozen", "exported"])
def test_a_model_without_layers_that_run_is_observed_as_a_whole(run, name):
    plain = rows_of(inspect(run, "Net", "--layers", "all"))
    ended = inspect(run, name, "--layers", "all")
    (row,) = rows_of(ended)
    assert (row["call_id"], row["mean"], row["std"]) == (
        "(model)",
        plain[0]["mean"],
        plain[0]["std"],
    )
    reasons = {
        "frozen": "",
        "exported": "it has no forward: it only holds parameters or modules that the model uses",
    }
    assert reasons.get(name, "its hooks are passed by: it is TorchScript") in ended.err
