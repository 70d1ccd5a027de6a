"""Runs of folders that are killed many times, and the memory that many images need."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.toy_models import SLOW_NET
from tests.world.test_folders import assert_same_folders

pytestmark = pytest.mark.slow

PATIENCE = 300  # seconds
TOOL = (sys.executable, "-m", "hookcli", "inspect")
RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none")
SLOW = ("net.py:make", "photos", *RANDOM, "--size", "32", "--layers", "conv")


def noise(number, height=40, width=48):
    values = np.random.default_rng(number).integers(0, 256, (height + number % 3, width, 3))
    return Image.fromarray(values.astype(np.uint8))


def photos(count):
    Path("photos").mkdir()
    for number in range(count):
        noise(number).save(f"photos/{number:04}.png")


def call(*words, **environment):
    return subprocess.run(
        [*TOOL, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def begin(*words, **environment):
    Path("told").unlink(missing_ok=True)
    with Path("told").open("w") as told:
        process = subprocess.Popen(
            [*TOOL, *words], env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=told
        )
    while " into out\n" not in Path("told").read_text() and process.poll() is None:
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_killed_at_ten_random_moments_ends_with_the_same_bytes(workers):
    """Ten with workers and ten without; whenever it comes to its end, another run is begun."""
    Path("net.py").write_text(SLOW_NET)
    photos(300)
    words = (*SLOW, "--workers", str(workers))
    assert call(*words, "-o", "whole").returncode == 0
    moments, kills, ends = random.Random(5 + workers), 0, 0
    while kills < 10 or Path("out").exists():
        process = begin(*words, "-o", "out", "--resume", NAP="0.03")
        try:
            process.wait(moments.uniform(0.05, 1.2) if kills < 10 else PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0, Path("told").read_text()
        assert_same_folders("out", "whole")
        shutil.rmtree("out")
        ends += 1
    print(f"{kills} kills, {ends} runs to their end")
    assert ends >= 1


def peak(*words):
    """The most memory that the command held at once, or one of its workers, in bytes."""
    started = subprocess.Popen([*TOOL, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    assert started.returncode == 0
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_four_times_the_images_need_no_more_memory(workers):
    Path("few").mkdir()
    Path("many").mkdir()
    for number in range(400):
        noise(number, 240, 320).save(f"many/{number:03}.jpg")
        if number < 100:
            shutil.copy(f"many/{number:03}.jpg", "few")
    words = ("--layers", "conv", *RANDOM, "--workers", workers)
    few, many = (peak("resnet18", name, *words, "-o", f"{name}-run") for name in ("few", "many"))
    print(f"{few / 1e6:.0f} MB for 100 images, {many / 1e6:.0f} MB for 400: {many / few:.3f}")
    assert many / few < 1.2
