"""Inputs that do not fit the model, and images on which the model fails: skipped or named, and the
rest is kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import interrupted_after

PLAIN = ("--weights", "random", "--device", "cpu", "--grids", "none")
SKIP = ("--on-error", "skip")
NET = """
import torch
from torch import nn


class Net(nn.Module):
    # an image is one number; {why}
    def __init__(self):
        super().__init__()
        self.first, self.second, self.fc = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1), nn.Linear(2, 2)
        for part in (self.first, self.second, self.fc):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        self.second.register_forward_pre_hook(self.look)
        self.largest = 0

    def look(self, _module, inputs):
        self.largest = max(self.largest, len(inputs[0]))
        numbers = (inputs[0][:, 0, 0, 0] / 3).tolist()
        {check}

    def forward(self, x):
        return self.fc(self.second(self.first(x)).mean((2, 3)))
"""


def write_net(check, why=""):
    Path("net.py").write_text(NET.format(check=check, why=why))


def unlucky(*numbers):
    write_net(f"assert not {set(numbers)} & set(map(round, numbers)), 'unlucky'")


def images(count, folder="many", shape=(3, 4, 4)):
    """Files 00.npy, 01.npy, … of which each holds its number everywhere."""
    Path(folder).mkdir(exist_ok=True)
    for number in range(count):
        np.save(f"{folder}/{number:02}.npy", np.full(shape, number, np.float32))
    return folder


def inspected(*words, out="out"):
    return ("inspect", "net.py:Net", *words, *PLAIN, "-o", out)


def rows(file):
    with Path(file).open(newline="") as stream:
        return list(csv.DictReader(stream))


def skipped(out="out"):
    return [(row["file"], row["reason"]) for row in rows(f"{out}/skipped.csv")]


def keys(out="out"):
    return [image["key"] for image in json.loads(Path(out, "manifest.json").read_text())["images"]]


def all_files(folder):
    files = (file for file in Path(folder).rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def names(*numbers):
    return [f"{number:02}" for number in numbers]


# Inputs that do not fit


def test_a_tensor_of_other_channels_among_41_is_skipped_with_file_and_reason(run):
    folder = images(41, shape=(3, 32, 32))
    np.save("many/13b.npy", np.zeros((1, 32, 32), np.float32))
    ended = run("inspect", "resnet18", folder, *PLAIN, "--layers", "conv1", "-o", "out")
    assert ended.code == 6, ended.err
    reason = "is 1x32x32: this network takes 3 channels"
    assert skipped() == [("many/13b.npy", reason)]
    assert f"warning: skipped 'many/13b.npy': {reason}" in ended.err.splitlines()
    assert keys() == names(*range(41))


@pytest.mark.parametrize("command", ["gradients", "ablate"])
def test_every_command_skips_what_does_not_fit(run, command):
    for name, channels in (("good", 3), ("bad", 1)):
        np.save(f"{name}.npy", np.zeros((channels, 32, 32), np.float32))
    words = [command, "squeezenet1_1", "bad.npy", "good.npy", *PLAIN[:4], "--layers", "conv[1]"]
    words += {"ablate": ["--channels", "0-1"], "gradients": ["--grids", "none"]}[command]
    ended = run(*words)
    assert ended.code == 6, ended.err
    reason = "is 1x32x32: this network takes 3 channels"
    assert f"warning: skipped 'bad.npy': {reason}" in ended.err.splitlines()


def test_an_own_model_takes_what_its_first_image_had(run):
    write_net("pass")
    for number, channels in enumerate((3, 1, 3, 4)):
        np.save(f"{number}.npy", np.zeros((channels, 4 + number, 4), np.float32))
    ended = run(*inspected(*(f"{number}.npy" for number in range(4))))
    assert ended.code == 6, ended.err
    assert skipped() == [
        ("1.npy", "is 1x5x4: the first image that went through has 3 channels"),
        ("3.npy", "is 4x7x4: the first image that went through has 3 channels"),
    ]
    assert keys() == ["0", "2"]


# Images on which the model fails


FAILED = "the model failed in second (Conv2d): unlucky"


@pytest.mark.parametrize("number", [0, 5])
def test_the_image_on_which_a_model_fails_is_found_and_named(run, number):
    unlucky(number)
    ended = run(*inspected(images(12)))
    assert ended.code == 4
    error, hint = ended.err.splitlines()[-2:]
    assert error == f"error: 'many/{number:02}.npy': {FAILED}"
    assert hint.startswith("hint: it was given input 1x2x4x4; its weight is 2x2x1x1; ")
    assert hint.endswith("; --on-error skip leaves it out, and --resume continues the run")
    assert not Path("out/manifest.json").exists()


def test_a_single_image_needs_no_name(run):
    unlucky(0)
    ended = run(*inspected("one/00.npy" if images(1, "one") else ""))
    assert ended.code == 4
    assert ended.err.splitlines()[-2] == f"error: {FAILED}"
    assert "--on-error" not in ended.err


def test_a_failing_image_leaves_nothing_else_behind(run):
    """Its page, tables and pictures are those of a run that was not given it, but for what says
    so."""
    unlucky(1, 7)
    folder = images(10)
    Path(folder, "00.npy").unlink()
    words = ("--grids", "layers", "--save", "tensors", "--layers", "all", "--edit", "first:scale=2")
    assert run("inspect", "net.py:Net", folder, *PLAIN[:4], *words, *SKIP, "-o", "out").code == 6
    for number in (1, 7):
        Path(folder, f"{number:02}.npy").unlink()
    assert run("inspect", "net.py:Net", folder, *PLAIN[:4], *words, "-o", "other").code == 0
    one, other = all_files("out"), all_files("other")
    assert one.keys() - other.keys() == {"skipped.csv"}
    assert other.keys() <= one.keys()
    differing = {name for name in other if one[name] != other[name]}
    assert differing == {"manifest.json", "report.html", "report.json"}
    facts, plain = (json.loads(Path(out, "report.json").read_text()) for out in ("out", "other"))
    for document in (facts, plain):  # pictures are listed by the batches they came from
        document["grids"].sort(key=lambda grid: grid["file"])
    assert {name for name in plain if facts[name] != plain[name]} == {"skipped", "findings"}
    assert [f["rule"] for f in facts["findings"] if f not in plain["findings"]] == ["skipped"]


def test_when_every_image_fails_the_run_ends_with_3(run):
    unlucky(*range(5))
    ended = run(*inspected(images(5), *SKIP))
    assert ended.code == 3
    error = f"no image can be used: 'many/00.npy' {FAILED} (and 4 more)"
    assert ended.err.splitlines()[-2] == f"error: {error}"
    assert [file for file, _ in skipped()] == [f"many/{number:02}.npy" for number in range(5)]


@pytest.mark.parametrize("command", ["gradients", "ablate", "compare", "golden"])
def test_other_commands_name_and_skip_too(run, command):
    unlucky(3)
    folder = images(4)
    Path(folder, "00.npy").unlink()  # a channel that is zeroed would look like it
    words = [command, "net.py:Net", folder, *PLAIN[:4], "--layers", "first"]
    words += {"compare": ["--against", "threads=1"], "gradients": ["-o", "out"]}.get(command, [])
    ended = run(*words)
    assert ended.code == 4
    error, hint = ended.err.splitlines()[-2:]
    assert error.startswith("error: 'many/03.npy': ")
    assert error.endswith(FAILED)
    assert "; --on-error skip leaves it out" in hint
    ended = run(*words, *SKIP, *["--overwrite"] * (command == "gradients"))
    assert ended.code == 6, ended.err
    assert "warning: skipped 'many/03.npy': " in ended.err


# Models that take one image at a time


def test_a_model_that_takes_one_image_at_a_time_gets_one_at_a_time_and_it_is_said(run):
    write_net("assert len(numbers) == 1, 'one at a time'")
    ended = run(*inspected(images(12)))
    assert ended.code == 0, ended.err
    (said,) = [line for line in ended.err.splitlines() if line.startswith("warning: a batch")]
    assert said == (
        "warning: a batch of 2 images failed (the model failed in second (Conv2d): one at a "
        "time), and its "
        "halves do not: from here on images go through one at a time, as with --batch-size 1"
    )
    assert keys() == names(*range(12))
    assert run(*inspected("many", out="other"), "--batch-size", "1").code == 0
    assert Path("out/layers.csv").read_bytes() == Path("other/layers.csv").read_bytes()


# Going on


@pytest.mark.usefixtures("small_parts")
def test_a_run_that_is_resumed_ends_with_the_bytes_of_one_that_was_not_interrupted(run):
    unlucky(2, 9, 22)
    folder = images(23)
    words = ("--batch-size", "5", "--layers", "all")
    assert run(*inspected(folder, *SKIP, *words, out="whole")).code == 6
    with interrupted_after(chunks=1):
        assert run(*inspected(folder, *SKIP, *words)).code == 130
    ended = run(*inspected(folder, *words, *SKIP), "--resume")
    assert ended.code == 6, ended.err
    assert all_files("out") == all_files("whole")


@pytest.mark.usefixtures("small_parts")
def test_resume_may_change_what_an_error_does(run):
    unlucky(10, 11, 18)
    folder = images(19)
    assert run(*inspected(folder, *SKIP, out="whole")).code == 6
    for words in ((), ("--resume",)):  # it meets the image again
        ended = run(*inspected(folder), *words)
        assert ended.code == 4
        assert "error: 'many/10.npy': " in ended.err
        assert sorted(file.name for file in Path("out/parts").iterdir()) == [
            "000000.json",
            "top.json",
            "written.jsonl",
        ]
    ended = run(*inspected(folder, *SKIP), "--resume")
    assert ended.code == 6, ended.err
    assert "continuing after 8 of 19 images" in ended.err
    assert all_files("out") == all_files("whole")


def test_what_an_error_does_is_not_in_the_command_that_repeats_the_run(run):
    unlucky(2)
    assert run(*inspected(images(4), *SKIP)).code == 6
    assert "skip" not in json.loads(Path("out/run.json").read_text())["command"]


def test_skipped_images_are_in_the_order_of_the_run_whatever_the_reason(run):
    unlucky(2, 11)
    folder = images(13)
    for number in (1, 7):
        Path(folder, f"{number:02}.npy").write_bytes(b"no array")
    assert run(*inspected(folder, *SKIP)).code == 6
    assert [Path(file).stem for file, _ in skipped()] == names(1, 2, 7, 11)
