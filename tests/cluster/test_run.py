"""What a run on a cluster writes, held to a run on this machine; workers live in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.fake_ray import FakeRay, put_in_place
from tests.run.test_folders import assert_same_folders
from tests.run.test_on_error import SKIP, images, inspected, unlucky

THERE = ("--cluster", "auto", "--cluster-workers", "2")
HERE = ("--threads", "1")


@pytest.fixture(params=[0, 1], autouse=True)
def ray(request, monkeypatch):
    """A stand-in for Ray; its seed tells the order in which chunks come back."""
    return put_in_place(monkeypatch, FakeRay(seed=request.param))


def run_both(run, *words):
    """The exit code and what is said after the plan, which must be alike here and there."""
    here, there = run(*words, *HERE, "-o", "here"), run(*words, *THERE, "-o", "there")
    assert there.err.splitlines()[1:] == here.err.splitlines()[1:]
    assert there.code == here.code
    return there


def read_tables(out):
    return {file.name: file.read_bytes() for file in Path(out).glob("*.csv")}


@pytest.mark.parametrize("first", [1, 70])
def test_an_image_on_which_the_model_fails_ends_the_run_with_the_same_tables(run, first):
    unlucky(first, 90)
    folder = images(110)
    Path(folder, "00.npy").write_bytes(b"no array")
    ended = run_both(run, *inspected(folder)[:-2])
    assert ended.code == 4
    assert f"'many/{first:02}.npy': the model failed in second" in ended.err
    assert read_tables("here").keys() == {"layers.csv", "skipped.csv"}
    assert read_tables("here") == read_tables("there")
    ended = run(*inspected(folder, *SKIP, out="there"), *THERE, "--resume")
    assert ended.code == 6, ended.err
    run(*inspected(folder, *SKIP, *HERE, out="whole"))
    assert_same_folders("whole", "there")
