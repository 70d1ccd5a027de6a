"""Workers that wait, are killed, find no room or differ; they live in this process."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hookcli.cluster.run import _pin_model
from hookcli.config import ModelRequest
from hookcli.plan.prepare import prepare_run
from hookcli.plan.prepared import require_eager
from tests.cluster.fake_ray import FakeRay, LostError, put_in_place
from tests.configs import inspect_config
from tests.world.test_folders import assert_same_folders
from tests.world.test_on_error import PLAIN, images, inspected, unlucky

THERE = ("--cluster", "auto", "--cluster-workers", "2")


@pytest.fixture(autouse=True)
def ray(monkeypatch):
    return put_in_place(monkeypatch, FakeRay())


def list_warnings(ended):
    start = "warning: "
    told = [line.removeprefix(start) for line in ended.err.splitlines() if line.startswith(start)]
    assert told[0] == "the weights are RANDOM, as asked for"
    return told[1:]


# Waiting, and room


def test_it_is_said_once_that_no_worker_is_ready(run, ray):
    unlucky()
    ray.idle = 2
    ended = run(*inspected(images(3)), *THERE)
    assert ended.code == 0, ended.err
    assert list_warnings(ended) == [
        "no worker is ready yet: the cluster may have no room, or the model is still being loaded"
    ]


def test_there_are_as_many_workers_as_nodes_have_room_for(run, ray):
    unlucky()
    ray.room = [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0}, {"CPU": 3.0, "GPU": 4.0}, {}]
    words = ("--cpus-per-worker", 2, "--gpus-per-worker", 0.5)
    ended = run(*inspected(images(3)), "--cluster", "auto", *words)
    assert ended.code == 0, ended.err
    assert len(ray.options) == 3


def test_two_nodes_of_one_core_have_no_room_for_a_worker_of_two(run, ray):
    unlucky()
    ray.room = [{"CPU": 1.0}, {"CPU": 1.0}]
    ended = run(*inspected(images(3)), "--cluster", "auto", "--cpus-per-worker", 2)
    assert ended.code == 2
    assert ended.err.splitlines()[-2] == "error: the cluster has no room for a worker of 2 cores"


# The death of workers


def kill(ray, deaths, *doomed):
    """Kill so many workers over each chunk of these numbers, and return how many were."""
    killed = Counter()

    def begin(name, *args):
        key = args[0].number if name == "run" else name
        if key in doomed and killed[key] < deaths:
            killed[key] += 1
            raise LostError

    ray.before = begin
    return killed


def test_three_workers_may_die_over_each_chunk(run, ray):
    unlucky()
    folder = images(70)
    killed = kill(ray, 3, 0, 1, 2)
    ended = run(*inspected(folder), *THERE)
    assert ended.code == 0, ended.err
    assert killed == dict.fromkeys(range(3), 3)
    assert list_warnings(ended) == [
        "a worker was killed or its node was lost; such workers are replaced"
    ]
    assert run(*inspected(folder, "--threads", "1", out="here")).code == 0
    assert_same_folders("here", "out")


@pytest.mark.parametrize("doomed", [1, "prepare"])
def test_the_run_ends_when_a_fourth_worker_dies_over_one_chunk_or_in_one_place(run, ray, doomed):
    unlucky()
    killed = kill(ray, 99, doomed)
    ended = run(*inspected(images(70)), "--cluster", "auto", "--cluster-workers", 1)
    assert ended.code == 4
    assert ended.err.splitlines()[-2] == "error: workers are killed repeatedly"
    assert killed == {doomed: 4}


# Nodes that differ


def change_bytes(file):
    return lambda _patch: Path(file).write_bytes(Path(file).read_bytes() + b"\n#")


CHANGES = {
    "first image": change_bytes("many/00.npy"),
    "code of your own": change_bytes("net.py"),
    "run folder": lambda _patch: Path("out/run.json").unlink(),
    "weights": lambda patch: patch.setenv("SCALE", "2"),
    "library": lambda patch: patch.setattr(sys.modules["library"], "__version__", "9.9"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_node_that_differs_is_refused_by_its_name(run, ray, monkeypatch, what):
    def begin(_name):
        monkeypatch.setattr(platform, "node", lambda: "far")
        CHANGES[what](monkeypatch)

    Path("library").mkdir()
    Path("library/__init__.py").write_text(
        "from torch import nn\n__version__ = '1.0'\nclass Conv(nn.Conv2d): pass\n"
    )
    Path("net.py").write_text(
        "import os\nfrom library import Conv\n\n"
        "def make():\n"
        "    conv = Conv(3, 2, 1)\n"
        "    conv.weight.data *= float(os.environ.get('SCALE', '1'))\n"
        "    return conv\n"
    )
    words = ("inspect", "net.py:make", images(3), *PLAIN)
    assert run(*words, *THERE, "-o", "whole").code == 0
    ray.before = begin
    ended = run(*words, *THERE, "-o", "out")
    assert ended.code == 4
    error, hint = ended.err.splitlines()[-2:]
    expected = {"library": "9.9, not 1.0", "run folder": "missing, not "}
    assert error.startswith(f"error: the node 'far' differs in {what}: {expected.get(what, '')}")
    assert hint == "hint: all nodes must have the same versions, code and weights"


def test_a_worker_takes_the_gpu_that_it_is_given_not_that_of_the_driver():
    unlucky()
    request = ModelRequest("net.py:Net", weights="random", device="cpu")
    prepared = prepare_run(inspect_config(request, images(3), out="out"))
    model = require_eager(prepared.model, "a cluster")
    info = replace(model.loaded.info, device="cuda:1")
    settings = _pin_model(
        prepared.settings, replace(model, loaded=replace(model.loaded, info=info))
    )
    assert settings.config.run.model.device == "cuda"
