"""Whole outputs compared with files; ``make golden`` writes the files again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hookcli import __main__

GOLDEN = Path(__file__).parents[1] / "golden"
COMMANDS = {
    "help": ("--help",),
    "help_ablate": ("ablate", "--help"),
    "help_inspect": ("inspect", "--help"),
    "help_layers": ("layers", "--help"),
    "help_models": ("models", "--help"),
    "layers_squeezenet1_1.csv": ("layers", "squeezenet1_1", "--format", "csv"),
    "layers_squeezenet1_1.json": (
        *("layers", "squeezenet1_1", "--layers", "features.0,Fire[1]", "--format", "json"),
    ),
    "layers_squeezenet1_1.md": (
        *("layers", "squeezenet1_1", "--layers", "features.0,Fire[1]", "--format", "md"),
    ),
    "layers_squeezenet1_1.table": ("layers", "squeezenet1_1"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_whole_output_of_a_command_is_the_golden_one(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["hookcli", *COMMANDS[name]])
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # not `python -m pytest`
    assert __main__._run() == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == golden(name, printed.out)


def test_every_golden_text_belongs_to_a_command():
    assert {file.stem for file in GOLDEN.glob("*.txt")} == {*COMMANDS}


def golden(name: str, printed: str) -> str:
    """What the file holds, after it was rewritten where that was asked for."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("HOOKCLI_REWRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(printed, encoding="utf-8")
    return file.read_text(encoding="utf-8")
