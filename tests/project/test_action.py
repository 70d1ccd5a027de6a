"""The GitHub Action: the shell of its steps, with a small network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

HOME = Path(__file__).parents[2]
ACTION = yaml.safe_load((HOME / "action.yml").read_text(encoding="utf-8"))
STEPS = [step for step in ACTION["runs"]["steps"] if "run" in step]
REAL = f'exec {sys.executable} -m hookcli "$@"'
SPOKEN = "printf '%s\\n' \"$@\" > words"  # a hookcli that only remembers what it was told
MODEL = """
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.{act}(), nn.Conv2d(4, 5, 3))
"""


@pytest.fixture
def job(tmp_path):
    """A function that runs steps with inputs: the first code that is not 0, and what was said.

    ``hookcli`` is a line of shell that stands for the command; without one there is no command.
    """
    Path("bin").mkdir()
    command = Path("bin/hookcli")
    Path("a photo.png").symlink_to(HOME / "sample_images" / "cat.png")
    files = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    around = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path)}
    around |= {"PYTHONPATH": str(HOME), "GITHUB_ACTION_PATH": "the action's folder"}

    def run(steps=STEPS, hookcli=REAL, **given):
        command.write_text(f"#!/bin/sh\n{hookcli}\n")
        command.chmod(0o755)
        if not hookcli:
            command.unlink()
        inputs = {
            name: facts.get("default", "") for name, facts in ACTION["inputs"].items()
        } | given
        for step in steps:
            own = {name: fill(text, inputs) for name, text in step["env"].items()}
            ended = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                env=os.environ | around | files | own,
                capture_output=True,
                text=True,
                check=False,
            )
            if ended.returncode:
                return ended.returncode, ended.stdout
        return 0, ""

    return run


def fill(text, inputs):
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], text)


@pytest.mark.integrations
def test_an_update_is_held_and_a_change_fails_the_job_and_names_the_layer(job):
    Path("model.py").write_text(MODEL.format(act="ReLU"))
    given = {"model": "model.py:make", "images": "a photo.png\n", "args": "--device cpu\n--size 64"}
    assert job(**given) == (
        2,
        "::error::there is no golden file: commit the artifact activations as the input golden\n",
    )
    assert job([STEPS[2]], update="true") == (0, "")
    assert Path("golden.json").read_bytes() == Path("activations.json").read_bytes()
    assert Path("GITHUB_OUTPUT").read_text() == f"golden={Path.cwd()}/activations.json\n"

    assert job([STEPS[2]]) == (0, "")
    summary = Path("GITHUB_STEP_SUMMARY")
    assert summary.read_text().startswith("**no difference: 4 calls of 1 image hold; ")
    summary.unlink()

    Path("model.py").write_text(MODEL.format(act="SiLU"))
    code, talk = job(**given)
    assert code == 7
    assert talk.startswith("::error title=A layer does not give what it gave::1 differs first: ")
    assert summary.read_text().startswith("**1 differs first: ")
    assert job([STEPS[2]], tolerance="--rtol\n9") == (0, "")


def test_an_input_is_never_run_as_shell(job):
    evil = '$(touch pwned) `touch pwned` "; touch pwned; "'
    inputs = dict.fromkeys(ACTION["inputs"], evil)
    for step in STEPS:
        job([step], SPOKEN, **inputs)
    assert not Path("pwned").exists()
    assert [step["name"] for step in STEPS if "${{" in step["run"]] == []


def test_a_file_of_an_action_that_ran_before_is_not_kept_if_the_model_fails(job):
    Path("activations.json").write_text("of another model")
    assert job([STEPS[1]], "exit 4", model="resnet18", images="photo.png") == (4, "")
    assert not Path("activations.json").exists()


def test_every_image_is_a_word_and_every_option_too_whatever_they_hold(job):
    assert job(
        [STEPS[1]],
        SPOKEN,
        model="-net.py:make",
        layers="re:^a b*$",
        images="a photo.png\n\n*.png\n",
        args="--weights random\n--exclude *\n",
    ) == (0, "")
    assert Path("words").read_text().splitlines() == [
        *("golden", "--layers", "re:^a b*$", "-o", f"{Path.cwd()}/activations.json"),
        *("--weights", "random", "--exclude", "*", "--", "-net.py:make", "a photo.png", "*.png"),
    ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, ""),
        (2, ""),
        (7, "::error title=A layer does not give what it gave::conv differs by 10%25\n"),
    ],
)
def test_the_code_of_the_comparison_is_that_of_the_job(job, code, said):
    Path("golden.json").touch()
    hookcli = f"echo 'conv differs by 10%' >&2; echo table; exit {code}"
    assert job([STEPS[2]], hookcli, tolerance="--rtol 1") == (code, said)
    assert Path("GITHUB_STEP_SUMMARY").read_text() == "table\n"


def test_hookcli_is_installed_only_where_it_is_not(job):
    python = Path("bin/python")
    python.write_text(f"#!/bin/sh\n{SPOKEN}\n")
    python.chmod(0o755)
    assert job([STEPS[0]], "exit 0") == (0, "")
    assert not Path("words").exists()
    for given, words in (("", ["the action's folder"]), ("-r requirements.txt", None)):
        assert job([STEPS[0]], "", install=given) == (0, "")
        assert Path("words").read_text().splitlines()[3:] == (words or given.split())
