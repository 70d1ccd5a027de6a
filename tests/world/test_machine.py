"""When processes read images, although nobody asked for them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import hookcli
from hookcli.images import prepare
from hookcli.plan import images


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
