"""What an interrupted run that is resumed must have in common with the one that was begun."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hookcli.images import read
from hookcli.outside.files import safe_name
from hookcli.plan import prepared
from hookcli.summary import chunks
from tests.conftest import interrupted_after

pytestmark = pytest.mark.usefixtures("small_parts")

WORDS = ("tests.toy_models:Squeezed", "rows.npy", "--layers", "features.0", "--device", "cpu")
OWN = ("net.py:Net", "rows.npy", "--layers", "conv", "--device", "cpu")
NET = """
import torch
from torch import nn
import scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(scale.by_two(x))
"""
SCALE = """
def by_two(x): return x * 2
"""


def save_rows(add):
    rows = np.random.default_rng(0).random((10, 3, 32, 32), dtype=np.float32)
    np.save("rows.npy", rows + np.float32(add))


def means():
    return [row["mean"] for row in pq.read_table("out/records.parquet").to_pylist()]


def interrupt(run, words, at=1):
    save_rows(0)
    with interrupted_after(chunks=at):
        ended = run("inspect", *words, "-o", "out")
    assert ended.code == 130
    assert Path("out/parts/000000.json").exists() == bool(at)
    return ended.err.splitlines()


@pytest.fixture
def begun(run):
    interrupt(run, WORDS)


@pytest.fixture
def own(run):
    Path("net.py").write_text(NET)
    Path("scale.py").write_text(SCALE)
    interrupt(run, OWN)


def resume(run, words=OWN):
    ended = run("inspect", *words, "-o", "out", "--resume")
    return ended.code, ended.err.splitlines()[-2:]


def check_it_begins_again(run, *more):
    ended = run("inspect", *WORDS, "-o", "out", "--resume", *more)
    assert ended.code == 0, ended.err
    assert "warning: some saved results can no longer be used: the run begins again" in ended.err


def change_request(name, **values):
    file = Path("out/run.json")
    document = json.loads(file.read_text())
    document[name] |= values
    file.write_text(json.dumps(document))


def test_chunks_that_a_version_with_another_form_has_saved_are_run_again(run, begun, monkeypatch):
    """Their figures would be read as those that a field which they lack has by default."""
    monkeypatch.setattr(prepared, "FORM", chunks.FORM + 1)
    check_it_begins_again(run)


def test_top_images_in_another_form_are_not_taken_for_none(run, begun):
    Path("out/parts/top.json").write_text("{}")
    check_it_begins_again(run)


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_rows_of_a_file_that_has_changed_run_again(run, begun, verify):
    save_rows(100)
    check_it_begins_again(run, *verify)
    resumed = means()
    assert run("inspect", *WORDS, "-o", "out", "--overwrite").code == 0
    assert resumed == means()
    images = json.loads(Path("out/manifest.json").read_text())["images"]
    assert len({image["sha256"] for image in images}) == 1


def test_a_model_whose_code_has_changed_is_not_joined_with_the_one_before(run, own):
    Path("scale.py").write_text(SCALE + "# more\n")
    assert resume(run) == (
        2,
        [
            "error: --resume: the run in 'out' was started before scale.py changed",
            "hint: restore the file, or start again with --overwrite",
        ],
    )


def test_a_run_is_resumed_only_with_the_version_of_torch_that_began_it(run, own):
    change_request("versions", torch="2.0.1")
    assert resume(run) == (
        2,
        [
            (
                "error: --resume: the run in 'out' was started with torch 2.0.1, "
                f"not {version('torch')}"
            ),
            "hint: use the same, or start again with --overwrite",
        ],
    )


def test_an_interrupt_promises_to_keep_chunks_only_if_there_are_any(run):
    kept = "hint: the first 8 images are kept; --resume continues after them"
    none = "hint: images are kept 8 at a time: --resume begins with the first one again"
    assert interrupt(run, WORDS, at=0)[-2:] == ["error: interrupted", none]
    shutil.rmtree("out")
    assert interrupt(run, WORDS)[-2:] == ["error: interrupted", kept]


def test_a_resumed_run_says_that_it_starts_with_the_first_image(run):
    save_rows(0)
    ended = run("inspect", *WORDS, "-o", "out", "--resume")
    assert ended.code == 0
    assert "nothing to resume: starting with the first image" in ended.err.splitlines()


def test_a_run_with_a_name_that_windows_does_not_allow_is_not_gone_on_with(run, monkeypatch):
    Path("rows").mkdir()
    for name in ("con", *(f"d{number}" for number in range(9))):
        np.save(f"rows/{name}.npy", np.full((3, 32, 32), 1, np.float32))
    words = (WORDS[0], "rows", *WORDS[2:])
    with monkeypatch.context() as patch:
        patch.setattr(read, "portable_name", safe_name)  # as an earlier version did
        interrupt(run, words)
    before = {file: file.read_bytes() for file in Path("out").rglob("*") if file.is_file()}
    ended = run("inspect", *words, "-o", "out", "--resume")
    assert ended.code == 2
    assert "error: --resume: the run in 'out' has a file 'seen/con.jpg', a name that" in ended.err
    assert all(file.read_bytes() == data for file, data in before.items())


def test_what_the_second_pass_of_the_first_image_found_is_kept(run):
    Path("net.py").write_text(NET.replace("scale.by_two(x)", "x + torch.rand(())"))
    Path("scale.py").write_text(SCALE)
    interrupt(run, OWN)
    assert resume(run)[0] == 0
    findings = json.loads(Path("out/report.json").read_text())["findings"]
    (found,) = (each for each in findings if each["rule"] == "not-deterministic")
    assert (found["layer"], found["number"]) == ("conv", 1)
