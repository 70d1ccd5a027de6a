"""Inputs that do not fit the model, and images on which the model fails: skipped or named, and the
rest is kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hookcli.cli.output.progress import Bar as Progress
from hookcli.config import ModelRequest
from hookcli.networks.load import build_skeleton
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
    """A model that fails on these images, after its first layer."""
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


@pytest.mark.parametrize("command", ["gradients", "ablate", "compare", "golden"])
def test_every_command_skips_what_does_not_fit(run, command):
    for name, channels in (("good", 3), ("bad", 1)):
        np.save(f"{name}.npy", np.zeros((channels, 32, 32), np.float32))
    words = [command, "squeezenet1_1", "bad.npy", "good.npy", *PLAIN[:4], "--layers", "conv[1]"]
    words += {"compare": ["--against", "threads=1"], "ablate": ["--channels", "0-1"]}.get(
        command, []
    )
    words += ["--grids", "none", "-o", "out"] if command == "gradients" else []
    ended = run(*words)
    assert ended.code == 6, ended.err
    reason = "is 1x32x32: this network takes 3 channels"
    assert f"warning: skipped 'bad.npy': {reason}" in ended.err.splitlines()


def test_a_network_of_one_size_refuses_another():
    prepare = build_skeleton(ModelRequest("vit_b_32", size=32)).prepare
    assert prepare.refuse_pixels((3, 48, 48)) == "is 3x48x48: this network takes 3x32x32"
    assert prepare.refuse_pixels((3, 32, 32)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_b_32", "maxvit_t", "mvit_v1_b", "mvit_v2_s"])
def test_what_is_said_of_the_size_of_a_network_is_what_it_takes(name):
    """By another way: its forward on the meta device."""
    skeleton = build_skeleton(ModelRequest(name))
    shape = skeleton.prepare.nominal_shape
    assert skeleton.prepare.fixed == (224, 224)
    for side in (192, 220, 224, 225, 256, 448):
        pixels = torch.zeros((*shape[:-2], side, 224), device="meta")
        try:
            with torch.no_grad():
                skeleton.module(*skeleton.inputs.arguments_of(pixels))
            taken = True
        except (AssertionError, RuntimeError):
            taken = False
        assert taken == (side == 224), side


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", "swin_t", "swin_v2_t", "convnext_tiny", "swin3d_t", "r3d_18"]
)
def test_a_network_of_any_size_is_said_to_be_one(name):
    skeleton = build_skeleton(ModelRequest(name))
    assert skeleton.prepare.fixed is None
    for side in (192, 217, 256):
        pixels = torch.zeros((*skeleton.prepare.nominal_shape[:-2], side, 224), device="meta")
        with torch.no_grad():
            skeleton.module(*skeleton.inputs.arguments_of(pixels))


def test_a_timm_network_of_one_size_and_one_of_one_colour_are_known():
    pytest.importorskip("timm")
    vit = build_skeleton(ModelRequest("timm:vit_tiny_patch16_224")).prepare
    assert (vit.fixed, vit.channels) == ((224, 224), 3)
    assert build_skeleton(ModelRequest("timm:test_vit")).prepare.fixed is None  # it takes any
    grey = build_skeleton(ModelRequest("timm:test_resnet", arguments=(("in_chans", "1"),))).prepare
    assert (grey.fixed, grey.channels, grey.nominal_shape) == (None, 1, (1, 1, 160, 160))


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


@pytest.mark.parametrize("command", ["ablate", "compare"])
def test_other_commands_too_take_of_an_own_model_what_its_first_image_had(run, command):
    write_net("pass")
    for number, channels in enumerate((3, 1, 3)):
        np.save(f"{number}.npy", np.full((channels, 4, 4), 1.0, np.float32))
    words = ("--against", "threads=1") if command == "compare" else ()
    ended = run(command, "net.py:Net", "0.npy", "1.npy", "2.npy", *PLAIN[:4], *words)
    assert ended.code == 6, ended.err
    reason = "is 1x4x4: the first image that went through has 3 channels"
    assert f"warning: skipped '1.npy': {reason}" in ended.err.splitlines()


# Images on which the model fails


FAILED = "the model failed in second (Conv2d): unlucky"


@pytest.mark.parametrize("number", [0, 5, 11])
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


def test_running_out_of_memory_on_one_image_skips_it(run):
    write_net("if 3 in map(round, numbers): raise MemoryError('too large')")
    ended = run(*inspected(images(6), *SKIP))
    assert ended.code == 6, ended.err
    assert skipped() == [("many/03.npy", "the model failed in second (Conv2d): too large")]


def test_hooks_that_are_taken_off_on_one_image_skip_it(run):
    write_net("if 3 in map(round, numbers): self.first._forward_hooks.clear()")
    ended = run(*inspected(images(6), *SKIP))
    assert ended.code == 6, ended.err
    ((file, reason),) = skipped()
    assert file == "many/03.npy"
    assert reason.startswith("the model removed the hooks from first (Conv2d)")
    assert keys() == names(0, 1, 2, 4, 5)


def test_a_score_that_fails_on_an_image_is_the_images_too(run):
    write_net("pass")
    text = (
        "def of(output, target):\n    assert output[0, 0] < 50, 'large'\n    return output.sum()\n"
    )
    Path("large.py").write_text(text)
    words = ("--score", "large.py:of")
    ended = run("gradients", "net.py:Net", images(6), *PLAIN, *SKIP, *words, "-o", "out")
    assert ended.code == 6, ended.err
    failed = "`score='large.py:of'` raised AssertionError: large"
    assert skipped() == [("many/05.npy", failed)]  # 2 * 2 * 3 * 5 is 60


@pytest.mark.parametrize("words", [(), SKIP])
def test_a_score_that_an_image_does_not_have_is_the_images_too(run, words):
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Conv2d):\n"
        "    def __init__(self): super().__init__(3, 1, 1)\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x).mean((1, 2, 3))\n"
        "        count = int(x.max() != 2)\n"
        "        return [{'boxes': y.new_zeros(count, 4), 'scores': y[:count],"
        " 'labels': torch.ones(count, dtype=int)}]\n"
    )
    ended = run(
        "gradients", "net.py:Net", images(4), *PLAIN, "--layers", "all", *words, "-o", "out"
    )
    failed = "the model found no box in an image"
    if words:
        assert ended.code == 6, ended.err
        assert skipped() == [("many/02.npy", failed)]
    else:
        assert ended.code == 2
        assert ended.err.splitlines()[-2] == f"error: 'many/02.npy': {failed}"


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


def test_what_was_zeroed_of_an_image_before_it_failed_does_not_count(run):
    """The model fails on the second of three images once a channel of it is zeroed."""
    check = (
        "assert not (self.training is False and 0 in numbers and 1 in map(round, "
        "self.seen)), 'zero'"
    )
    write_net(check)
    text = Path("net.py").read_text()
    text = text.replace("self.largest = 0", "self.seen = []")
    text = text.replace("self.largest = max(self.largest, len(inputs[0]))", "")
    text = text.replace(
        "    def forward(self, x):\n",
        "    def forward(self, x):\n        self.seen = x[:, 0, 0, 0].tolist()\n",
    )
    Path("net.py").write_text(text)
    folder = images(4)
    Path(folder, "00.npy").unlink()
    words = (*PLAIN[:4], "--layers", "first", "--format", "json")
    ended = run("ablate", "net.py:Net", folder, *words, *SKIP)
    assert ended.code == 6, ended.err
    Path(folder, "01.npy").unlink()
    other = run("ablate", "net.py:Net", folder, *words)
    assert other.code == 0, other.err
    one, two = json.loads(ended.out), json.loads(other.out)
    assert [image["file"] for image in one["images"]] == ["many/02.npy", "many/03.npy"]
    assert one["channels"] == two["channels"]


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


def test_the_failing_image_is_found_if_the_model_takes_one_image_at_a_time(run):
    write_net("assert len(numbers) == 1 and round(numbers[0]) != 6, 'unlucky'")
    ended = run(*inspected(images(12), *SKIP))
    assert ended.code == 6, ended.err
    assert skipped() == [("many/06.npy", FAILED)]


def test_a_batch_that_is_divided_for_one_image_is_not_said_to_be_too_large(run):
    unlucky(6)
    ended = run(*inspected(images(12), *SKIP))
    assert "warning: a batch" not in ended.err
    assert json.loads(Path("out/manifest.json").read_text())["halved_batches"] == 0


# Going on


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("numbers", [(2, 9, 22), tuple(range(9)), tuple(range(7, 23))])
def test_a_run_that_is_resumed_ends_with_the_bytes_of_one_that_was_not_interrupted(run, numbers):
    unlucky(*numbers)
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


@pytest.mark.usefixtures("small_parts")
def test_an_own_model_that_is_resumed_takes_what_its_first_image_had(run):
    write_net("pass")
    folder = images(18)
    for number in (8, 17):  # the first of a part, too
        np.save(f"{folder}/{number:02}.npy", np.zeros((1, 4, 4), np.float32))
    assert run(*inspected(folder, out="whole")).code == 6
    with interrupted_after(chunks=1):
        assert run(*inspected(folder)).code == 130
    assert run(*inspected(folder), "--resume").code == 6
    assert [file for file, _ in skipped()] == ["many/08.npy", "many/17.npy"]
    assert all_files("out") == all_files("whole")


def test_the_first_image_that_passes_decides_which_layer_overwrites_which(run):
    write_net("assert max(map(round, numbers)) > 1, 'unlucky'; inputs[0].add_(1)")
    assert run(*inspected(images(4), *SKIP)).code == 6
    facts = json.loads(Path("out/report.json").read_text())
    assert facts["written"] == {"first": "inside (model) (Net)"}  # before its second part begins


def test_a_layer_overwritten_only_for_a_later_image_is_not_reported(run):
    """One forward is watched for it: that of the first image that goes through."""
    check = "assert 0 not in map(round, numbers), 'unlucky'; max(numbers) > 2 and inputs[0].add_(1)"
    write_net(check)
    assert run(*inspected(images(4), *SKIP, "--batch-size", "1")).code == 6
    assert json.loads(Path("out/report.json").read_text())["written"] == {}


RARE = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rare, self.never = nn.Conv2d(3, 2, 1), nn.Identity(), nn.Identity()

    def forward(self, x):
        if x.max() == 2:
            assert self.rare(x).any(), "zero"
        return self.conv(x)
"""


def test_an_edit_that_is_made_on_a_failing_image_alone_changed_nothing(run):
    """The model fails on one image, once it is edited."""
    Path("net.py").write_text(RARE)
    words = ("--edit", "rare:zero", "--batch-size", "1")
    ended = run(*inspected(images(4), *SKIP, *words))
    assert ended.code == 2
    assert "error: --edit 'rare:zero' changed nothing" in ended.err


@pytest.mark.parametrize(("edit", "code"), [("rare:scale=2", 0), ("never:zero", 2)])
def test_what_the_edits_did_before_an_interruption_is_known_when_the_run_goes_on(run, edit, code):
    """Only the third image, in the first part, runs the layer ``rare``; none runs the other."""
    Path("net.py").write_text(RARE)
    words = (*inspected(images(40)), "--batch-size", "1", "--edit", edit)
    with interrupted_after(chunks=1):
        assert run(*words).code == 130
    ended = run(*words, "--resume")
    assert ended.code == code, ended.err
    assert ("--edit 'never:zero' changed nothing" in ended.err) == (code == 2)


def test_skipped_images_are_in_the_order_of_the_run_whatever_the_reason(run):
    unlucky(2, 11)
    folder = images(13)
    for number in (1, 7):
        Path(folder, f"{number:02}.npy").write_bytes(b"no array")
    assert run(*inspected(folder, *SKIP)).code == 6
    assert [Path(file).stem for file, _ in skipped()] == names(1, 2, 7, 11)


@pytest.mark.usefixtures("small_parts")
def test_progress_counts_skipped_images_among_those_that_are_done(run, monkeypatch):
    """10 images are chunks of 8 and 2; the model fails on two of the first."""
    heard = []
    monkeypatch.setattr(Progress, "chunk_done", lambda _self, *counts: heard.append(counts))
    unlucky(2, 5)
    assert run(*inspected(images(10), *SKIP)).code == 6
    assert heard == [(8, 2), (10, 2)]


def test_one_number_an_image_is_an_output_like_others(run):
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Conv2d):\n"
        "    def __init__(self): super().__init__(3, 1, 1)\n"
        "    def forward(self, x): return super().forward(x).mean((1, 2, 3))\n"
    )
    words = ("--layers", "all", "--edit", "all:zero", "--sketch", "--save", "tensors")
    ended = run(*inspected(images(3), *words))
    assert ended.code == 0, ended.err
    (row,) = rows("out/layers.csv")
    assert (row["shape"], row["max"], row["change"]) == ("1", "0.0", "1.0")
