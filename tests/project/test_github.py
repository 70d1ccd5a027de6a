"""The files about the project itself: workflows, forms, how to cite it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

HOME = Path(__file__).parents[2]
GITHUB = HOME / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((HOME / "CITATION.cff").read_text(encoding="utf-8"))


def workflow(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_only_read_and_ends_by_itself(file):
    jobs = workflow(file)["jobs"].values()
    assert workflow(file)["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in jobs)
    granted = [job["permissions"] for job in jobs if "permissions" in job]
    assert granted in ([], [{"id-token": "write"}])


def test_every_command_of_make_in_a_workflow_exists():
    targets = set(re.findall(r"^([a-z-]+):", (HOME / "Makefile").read_text(), re.MULTILINE))
    used = {
        target
        for file in WORKFLOWS
        for target in re.findall(
            r"(?:run: make|command:) ([a-z-]+)", file.read_text(encoding="utf-8")
        )
    }
    assert used
    assert used - targets == set()


def test_every_folder_and_file_that_make_names_exists():
    named = set(
        re.findall(r"\b(?:tests|tools|benchmarks)/[\w./]+", (HOME / "Makefile").read_text())
    )
    assert named
    assert [path for path in sorted(named) if not (HOME / path).exists()] == []


def test_the_tests_run_on_every_python_that_the_package_is_for():
    matrix = workflow(GITHUB / "workflows" / "ci.yml")["jobs"]["tests"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert matrix["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_citation_is_that_of_this_version():
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])
