"""The README is true: its commands run, its Python runs, the options it names exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torchvision.models import resnet18

from hookcli.__main__ import _run

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
SMALL = ["--weights", "random", "--size", "64", "-q"]
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


def make_sides(words, monkeypatch):
    """The runs or golden files that a diff of the README names, of a small network; no more
    options."""
    for side in words[2:4]:
        command = (
            ["golden"] if side.endswith(".json") else ["inspect", "--sketch", "--grids", "none"]
        )
        run = [*command, "resnet18", "sample_images/cat.png", "-o", side, *SMALL]
        monkeypatch.setattr(sys, "argv", ["hookcli", *run])
        assert _run() == 0
    return []


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
    more, codes = ["--dry-run"] if runs else [], {0}
    if words[1] in ("golden", "diff", "compare"):
        more = make_sides(words, monkeypatch) if words[1] == "diff" else SMALL
        codes = {0, 7}
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [*words, *more])
    assert _run() in codes
    printed = capsys.readouterr()
    assert (printed.err if runs else printed.out).count("\n") >= 1


def test_the_examples_of_golden_and_diff_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    (tmp_path / "sample_images").symlink_to(HOME / "sample_images")
    monkeypatch.chdir(tmp_path)
    first = next(place for place, command in enumerate(COMMANDS) if "-o golden.json" in command)
    words = [shlex.split(command) for command in COMMANDS[first : first + 4]]
    assert [each[1] for each in words] == ["golden", "inspect", "diff", "diff"]
    for each in words:
        monkeypatch.setattr(
            sys, "argv", [*each, *(["--device", "cpu"] if each[1] != "diff" else [])]
        )
        capsys.readouterr()
        assert _run() == 0
    assert capsys.readouterr().out.startswith("no difference: 20 calls of 1 image hold; ")


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
        "golden",
        "schema",
        "golden",
        "diff",
        "compare",
    ):
        monkeypatch.setattr(sys, "argv", ["hookcli", command, "--help"])
        assert _run() == 0
        helps += capsys.readouterr().out
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--install-completion"}
    assert {option for option in named if option not in helps} == set()


# What the README says of CI

MODEL = """
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten())
"""
WORKFLOW, PRE_COMMIT = (yaml.safe_load(b) for language, b in BLOCKS if language == "yaml")


@pytest.fixture
def repository(tmp_path):
    """What the job finds: a model, a photo, the package's own command on PATH, and a pip that does
    nothing."""
    Path("model.py").write_text(MODEL)
    Path("tests").mkdir()
    Path("tests/photo.png").symlink_to(HOME / "sample_images" / "cat.png")
    (tmp_path / "bin").mkdir()
    for name, line in (("hookcli", f'exec {sys.executable} -m hookcli "$@"'), ("pip", "exit 0")):
        file = tmp_path / "bin" / name
        file.write_text(f"#!/bin/sh\n{line}\n")
        file.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}


def shell(script, environment):
    words = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def run_job(event, environment):
    """The steps of the README's job as the event starts it, up to the first that fails: its name,
    code and talk."""
    (job,) = WORKFLOW["jobs"].values()
    for step in job["steps"]:
        if "run" not in step or step.get("if", event) == f"github.event_name != '{event}'":
            continue
        ended = shell(step["run"], environment | job["env"])
        if ended.returncode:
            return step["name"], ended.returncode, ended.stderr
    return "", 0, ""


def test_the_job_makes_a_golden_file_passes_without_a_change_and_fails_with_one(repository):
    summary = Path("summary.md")
    assert run_job("workflow_dispatch", repository) == ("", 0, "")
    assert not summary.exists()
    Path("new.json").rename("golden.json")
    assert run_job("push", repository) == ("", 0, "")
    assert summary.read_text().startswith("**no difference: 5 calls of 1 image hold; ")
    summary.unlink()
    Path("model.py").write_text(MODEL.replace("nn.ReLU()", "nn.LeakyReLU(0.3)"))
    name, code, talk = run_job("pull_request", repository)
    assert (name, code) == ("Hold it against the golden file", 7)
    assert talk.startswith("1 differs first: ")
    assert summary.read_text().startswith("**1 differs first: ")


@pytest.mark.slow
def test_the_hook_before_a_commit_passes_and_fails_as_the_job_does(repository):
    (hook,) = PRE_COMMIT["repos"][0]["hooks"]
    assert re.match(hook["files"], "model.py")
    golden = hook["entry"].partition("'")[2].partition(" | ")[0]
    assert shell(f"{golden} > golden.json", repository).returncode == 0
    assert shell(hook["entry"], repository).returncode == 0
    Path("model.py").write_text(MODEL.replace("4, 5, 3", "4, 6, 3"))
    ended = shell(hook["entry"], repository)
    assert ended.returncode == 7
    assert ended.stdout.startswith("2 differs first: shapes differ: ")
    Path("model.py").write_text("broken")
    assert shell(hook["entry"], repository).returncode == 2  # the model says why; nothing came out
