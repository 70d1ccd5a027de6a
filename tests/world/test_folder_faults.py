"""Folder runs under worse conditions than a day's: many kills, many bad files, a disk that is
full, memory."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.toy_models import SLOW_NET

pytestmark = pytest.mark.slow

PATIENCE = 300  # seconds
TOOL = (sys.executable, "-m", "hookcli", "inspect")
RANDOM = ("--weights", "random", "--device", "cpu", "--grids", "none")
SQUEEZENET = ("squeezenet1_1", "photos", *RANDOM, "--size", "32", "--layers", "features.0")
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


def all_files(folder):
    root = Path(folder)
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def assert_same_folders(one, two):
    first, second = all_files(one), all_files(two)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def begin(*words, **environment):
    """Start the command; its run begins, or it has ended already."""
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


# What a folder can hold that is no good image


def cut(data, rng):
    return data[: rng.randrange(1, len(data))]


def flipped(data, rng):
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 30)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def zeroed(data, rng):
    start = rng.randrange(len(data))
    return data[:start] + bytes(len(data) - start)


def doubled(data, rng):
    return data + rng.randbytes(200)


def swapped(data, rng):
    half = rng.randrange(1, len(data))
    return data[half:] + data[:half]


def random_bytes(data, rng):
    return rng.randbytes(len(data))


def empty(_data, _rng):
    return b""


def text(_data, rng):
    return b"<html>not found</html>" * rng.randrange(1, 9)


def huge(data, rng):
    """A PNG whose header speaks of 60,000 by 60,000 pixels."""
    size = (60_000).to_bytes(4, "big")
    return data[:16] + size + size + data[24:] if data[1:4] == b"PNG" else text(data, rng)


BREAK = (cut, flipped, zeroed, doubled, swapped, random_bytes, empty, text, huge)
FORMATS = ("png", "jpg", "gif", "bmp", "tiff", "webp")
MODES = ("1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "F")


def odd_files(count):
    """``count`` files between the good ones; returns their names."""
    rng = random.Random(0)
    for number in range(count):
        kind = FORMATS[number % len(FORMATS)]
        file = Path(f"photos/{number % 300:04}-odd{number}.{kind}")
        if number % 50 == 49:
            os.symlink("nowhere", file)
        elif number % 50 == 48:
            os.mkfifo(file)
        elif number % 10 == 7:
            mode = MODES[number // 10 % len(MODES)]
            grey = Image.new("I;16", (40, 30), 40_000) if mode == "I;16" else None
            picture = grey or noise(number).convert("L" if mode == "F" else "RGB").convert(mode)
            file = file.with_suffix(".tiff" if mode in ("LA", "CMYK", "I;16", "F") else ".png")
            picture.save(file)
        else:
            noise(number).save(file)
            data = file.read_bytes()
            file.write_bytes(BREAK[number // len(FORMATS) % len(BREAK)](data, rng))
        yield str(file)


def records(out):
    files = sorted(Path(out, "records.parquet").iterdir())
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_a_thousand_odd_files_are_all_accounted_for_and_change_no_good_one():
    photos(300)
    good = sorted(str(file) for file in Path("photos").iterdir())
    words = (*SQUEEZENET, "--batch-size", "1", "--workers", "2")
    assert call(*words, "-o", "clean").returncode == 0
    odd = list(odd_files(1000))
    ended = call(*words, "-o", "out")
    assert ended.returncode == 6, ended.stderr[-3000:]
    assert "Traceback" not in ended.stderr
    manifest = json.loads(Path("out/manifest.json").read_bytes())
    used = [image["file"] for image in manifest["images"]]
    with Path("out/skipped.csv").open(newline="") as stream:
        skipped = {row["file"]: row["reason"] for row in csv.DictReader(stream)}
    assert not set(used) & set(skipped)
    assert sorted([*used, *skipped]) == sorted([*good, *odd])
    assert set(good) <= set(used)
    assert all(skipped.values())
    assert ended.stderr.count("warning: skipped ") == len(skipped)
    assert {skipped[file] for file in odd[48::50]} == {"is not a regular file"}
    assert {skipped[file] for file in odd[49::50]} == {"does not exist"}
    assert set(odd[7::10]) <= set(used)  # odd and good
    clean = {row["image"]: row for row in records("clean")}
    kept = {row["image"]: row for row in records("out") if row["image"] in clean}
    assert kept == clean
    again = call(*words, "-o", "again", "--workers", "0")
    assert again.returncode == 6
    assert_same_folders("out", "again")
    print(f"{len(used) - len(good)} of {len(odd)} odd files gave a picture")


# A disk and a memory with an end


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


# Ctrl-C
