"""Threads, and a cluster that cannot be had: what is refused before anything is loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hookcli
from hookcli.config import (
    ClusterRequest,
    ImageRequest,
    InspectConfig,
    MachineRequest,
    ModelRequest,
    RunRequest,
)
from hookcli.errors import RequestError
from hookcli.images import prepare
from hookcli.plan import check, images
from hookcli.run.pipeline import inspect_images
from tests.conftest import PHOTOS

RUN = ("inspect", "squeezenet1_1", PHOTOS / "cat.png", "--weights", "random", "--device", "cpu")


@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_has_as_many_threads_as_asked_for_and_says_so(run, threads):
    before = torch.get_num_threads()
    words = ("--size", "32", "--layers", "conv[1]", "--threads", threads, "-o", "out")
    assert run(*RUN, *words).code == 0
    manifest = json.loads(Path("out/manifest.json").read_bytes())
    assert manifest["versions"]["threads"] == str(threads)
    assert "--threads" not in manifest["command"]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--cpus-per-worker", 2), "--cpus-per-worker is for runs on a cluster"),
        (("--cluster", "auto", "--workers", 2), "--workers has no effect with --cluster"),
        (("--cluster", "auto", "--focus", "0,0,9,9"), "--focus is for one image"),
        (("--cluster", "auto", "--gpus-per-worker", 1.5), "--gpus-per-worker cannot be 1.5"),
        (("--threads", 0), "Invalid value for '--threads'"),
    ],
)
def test_options_of_machines_that_make_no_sense_are_refused(run, words, error):
    ended = run(*RUN, *words)
    assert ended.code == 2
    assert f"error: {error}" in ended.err


def test_python_code_that_asks_for_a_cluster_is_refused():
    request = RunRequest(ModelRequest("squeezenet1_1"), ImageRequest((str(PHOTOS / "cat.png"),)))
    config = InspectConfig(request, machine=MachineRequest(cluster=ClusterRequest("auto")))
    with pytest.raises(RequestError, match="on this machine alone"):
        inspect_images(config)


def test_without_ray_a_cluster_is_refused_with_the_command_that_installs_it(run, monkeypatch):
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    ended = run(*RUN, "--cluster", "auto")
    assert ended.code == 2
    assert ended.err.splitlines() == [
        "error: --cluster needs Ray, which is not installed",
        "hint: pip install 'hookcli[ray]'",
    ]


@pytest.mark.filterwarnings("ignore:the weights are as")
def test_processes_read_images_unasked_only_at_the_terminal(run, monkeypatch):
    """Where processes are spawned, they would run the user's program again."""
    started = []

    def load(dataset, num_workers, **_options):
        started.append(num_workers)
        return map(dataset.__getitem__, range(len(dataset)))

    monkeypatch.setattr(prepare, "DataLoader", load)
    monkeypatch.setattr(prepare, "_WORTH_WORKERS", 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(images, "_MOST_READ_FIRST", 0)  # as with many images
    np.save("rows.npy", np.zeros((2, 3, 32, 32), np.float32))
    asked: Any = {"layers": "features.0", "device": "cpu"}
    hookcli.inspect("tests.toy_models:Squeezed", "rows.npy", out="python", **asked)
    assert started == []
    hookcli.inspect("tests.toy_models:Squeezed", "rows.npy", out="asked", workers=2, **asked)
    words = ("--layers", "features.0", "--device", "cpu", "-o", "terminal")
    assert run("inspect", "tests.toy_models:Squeezed", "rows.npy", *words).code == 0
    assert started == [2, 3]
