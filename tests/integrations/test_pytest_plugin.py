"""The fixture ``activations``: tests of a project that uses it, run by pytest inside pytest."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from hookcli.comparison.compared_run import load_compared_run
from hookcli.distance.tolerance import Tolerance
from hookcli.integrations import golden_check
from tests import toy_models as toys

pytest_plugins = ["pytester"]

PLUGIN = "hookcli.integrations.pytest_plugin"
TEST = """
import torch
from tests import toy_models as toys

def test_model(activations):
    model = toys.Nested().train()
    model.block.conv.weight.data += {shift}
    activations.check(model, torch.tensor([[[2.0]]]), "golden.json"{more})
    assert model.training and model.block.conv.training
"""


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr("sys.path", [str(Path(__file__).parents[2]), *sys.path])

    def run(*options, shift=0.0, more=""):
        pytester.makepyfile(test_it=TEST.format(shift=shift, more=more))
        return pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *options)

    return run


def test_a_golden_file_is_missing_written_held_and_broken(project, pytester):
    missing = project()
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(
        ["there is no golden file *; to make it: pytest --activations-update"]
    )

    project("--activations-update").assert_outcomes(passed=1)
    project().assert_outcomes(passed=1)

    broken = project(shift=1.0)  # the convolution is times 3 in place of 2, what comes after too
    broken.assert_outcomes(failed=1)
    broken.stdout.fnmatch_lines(
        [
            "block.conv differs first: relative L2 0.5, tolerance 1e-05; 5 of 6 calls differ",
            "block.conv (Conv2d, 1x1x1x1): rel L2 0.5, cosine 1",
            "if this is meant: pytest --activations-update",
        ],
        consecutive=False,
    )
    project(shift=1.0, more=", rtol=0.6").assert_outcomes(passed=1)
    project("--activations-update", shift=1.0).assert_outcomes(passed=1)
    project(shift=1.0).assert_outcomes(passed=1)


def test_an_error_of_hookcli_is_a_failure_with_its_hint_and_no_traceback(project, pytester):
    ended = project("--activations-update", more=', layers="bloc"')
    ended.assert_outcomes(failed=1)
    ended.stdout.fnmatch_lines(
        ["no layer matches 'bloc'", "hint: did you mean block, block.conv, block.relu?"]
    )
    ended.stdout.no_fnmatch_line("*Traceback*")
    ended.stdout.no_fnmatch_line("*During handling*")
    assert not Path("golden.json").exists()


def test_the_file_names_no_folder_of_this_machine_and_is_one_that_diff_reads(tmp_path, cat):
    golden = tmp_path / "golden.json"
    photo = tmp_path / "photo.png"
    photo.symlink_to(cat)
    model = torch.nn.Sequential(toys.pointwise([1.0, 2.0, 3.0]))
    golden_check.check_golden(model, photo, golden, ("conv",), Tolerance(), update=True)
    document = json.loads(golden.read_text())
    assert document["command"] is None
    assert document["model"]["name"] == "Sequential in memory"
    assert [image["file"] for image in document["images"]] == ["photo.png"]
    assert str(tmp_path) not in golden.read_text()
    assert list(load_compared_run(str(golden)).calls) == ["photo"]
    golden_check.check_golden(model, photo, golden, ("conv",), Tolerance(), update=False)


def test_the_entry_point_of_the_package_is_the_plugin():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (name,) = project["project"]["entry-points"]["pytest11"].values()
    assert EntryPoint("hookcli", name, "pytest11").load().activations
