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
from hookcli.images import prepare
from hookcli.plan import check, images
from tests.conftest import PHOTOS

RUN = ("inspect", "squeezenet1_1", PHOTOS / "cat.png", "--weights", "random", "--device", "cpu")


def test_a_run_has_as_many_threads_as_asked_for_and_says_so(run):
    before = torch.get_num_threads()
    words = ("--size", "32", "--layers", "conv[1]", "--threads", 3, "-o", "out")
    assert run(*RUN, *words).code == 0
    manifest = json.loads(Path("out/manifest.json").read_bytes())
    assert manifest["versions"]["threads"] == "3"
    assert "--threads" not in manifest["command"]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--cluster", "auto", "--workers", 2), "--workers has no effect with --cluster"),
        (("--cluster", "auto", "--focus", "0,0,9,9"), "--focus is for one image"),
        (("--cluster", "auto", "--gpus-per-worker", 1.5), "--gpus-per-worker cannot be 1.5"),
    ],
)
def test_options_of_machines_that_make_no_sense_are_refused(run, words, error):
    ended = run(*RUN, *words)
    assert ended.code == 2
    assert f"error: {error}" in ended.err


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
