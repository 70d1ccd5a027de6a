"""The workflow that the guide shows for CI passes, and fails, when it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.test_commands import HOME, read_blocks

pytestmark = pytest.mark.docs

MODEL = """
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten())
"""
BLOCKS = read_blocks(HOME / "docs/guide/scripts.md")
WORKFLOW, *_ = (yaml.safe_load(b.text) for b in BLOCKS if b.language == "yaml")


@pytest.fixture
def repository(tmp_path):
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
    assert (name, code) == ("Compare with the golden file", 7)
    assert talk.startswith("1 differs first: ")
    assert summary.read_text().startswith("**1 differs first: ")
