"""The README is true: its commands run, its Python runs, the options it names exist."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from torchvision.models import resnet18

from hookcli.cli.entry import _run

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = [
    line
    for language, block in BLOCKS
    if not language
    for line in block.splitlines()
    if line.startswith("hookcli ")
]


def test_the_readme_has_commands_of_every_kind():
    assert {shlex.split(command)[1] for command in COMMANDS} >= {"inspect", "layers", "models"}


def save_features(monkeypatch, folder):
    """Run the README's command that saves tensors, with random weights and small images."""
    (saving,) = [command for command in COMMANDS if command.endswith(f"-o {folder}")]
    words = [*shlex.split(saving), "--weights", "random", "--size", "64", "--grids", "none"]
    monkeypatch.setattr(sys, "argv", words)
    assert _run() == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command, tmp_path, monkeypatch, capsys):
    """Runs of models stop at the plan, so that no weights are needed."""
    (tmp_path / "sample_images").symlink_to(HOME / "sample_images")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(re.split(r" [>|] ", command)[0])
    if words[1] == "export":
        save_features(monkeypatch, words[2])
        capsys.readouterr()
    runs = words[1] in ("inspect", "gradients", "ablate")
    monkeypatch.setattr(sys, "argv", [*words, *(["--dry-run"] if runs else [])])
    assert _run() == 0
    printed = capsys.readouterr()
    assert (printed.err if runs else printed.out).count("\n") >= 1


@pytest.mark.parametrize("code", [block for language, block in BLOCKS if language == "python"])
def test_the_python_of_the_readme_runs(code, tmp_path, monkeypatch):
    (tmp_path / "sample_images").symlink_to(HOME / "sample_images")
    monkeypatch.chdir(tmp_path)
    if "load_run" in code:
        save_features(monkeypatch, "my-features")
        names = {}
        exec(code, names)  # noqa: S102
        assert names["run"]["layer4.1.conv2"].shape == (5, 512)
        return
    names = {"model": resnet18(weights=None).eval(), "x": torch.ones(1, 3, 64, 64)}
    exec(code, names)  # noqa: S102
    captured = names["captured"]
    if "gradients=True" in code:
        assert names["norms"]["param:conv1.weight"] > 0
        return
    assert captured.records[0].call.id == "conv1"
    assert captured.tensors["layer1.0.conv1"].shape == (1, 64, 16, 16)


def test_every_option_that_the_readme_names_exists(monkeypatch, capsys):
    helps = ""
    for command in (
        "inspect",
        "gradients",
        "ablate",
        "layers",
        "models",
        "report",
        "export",
        "schema",
    ):
        monkeypatch.setattr(sys, "argv", ["hookcli", command, "--help"])
        assert _run() == 0
        helps += capsys.readouterr().out
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--install-completion"}
    assert {option for option in named if option not in helps} == set()
