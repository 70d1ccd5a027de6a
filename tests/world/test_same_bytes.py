"""The same command twice gives the same bytes, on the CPU: in the run folder and on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.conftest import PHOTOS, run_in
from tests.toy_models import SMALL_NET, SQUEEZED

CPU = ("--device", "cpu")
MODEL = "squeeze.py:Squeezed"
SQUEEZE = (MODEL, "cat.png", "--weights", "random", "--size", "64", *CPU, "--top", "4")
NET = ("net.py:Net", "photos", *CPU, "--layers", "leaf", "--batch-size", "8")
MANY = ("inspect", *NET, "--sketch", "--save", "tensors", "--grids", "sheet", "--tile", "8")
# name: the words; the run folder is called so too
COMMANDS = {
    "one image": (
        "inspect",
        *SQUEEZE,
        *("--overview", "--save", "tensors", "--layers", "conv"),
    ),
    "a focus": ("inspect", *SQUEEZE, "--focus", "150,110,60,60", "--layers", "conv[1:3]"),
    "heat": ("inspect", *SQUEEZE, "--heat", "mean", "--layers", "conv[1:3]"),
    "edits": (
        "inspect",
        *SQUEEZE,
        *("--edit", "conv[2]{1,3}:zero", "--prune", "conv=0.5:random", "--layers", "conv[2:3]"),
    ),
    "gradients": (
        "gradients",
        *SQUEEZE,
        *("--cam", "features.3", "--saliency", "--layers", "conv[1:2]"),
    ),
    "gradients of edits": (
        "gradients",
        *SQUEEZE,
        "--edit",
        "param:*.bias:zero",
        "--layers",
        "conv[-1]",
    ),
    "a folder": (*MANY, "--workers", "0"),
    "a folder of gradients": ("gradients", *NET[:-2], "--grids", "none", "--save", "tensors"),
    "golden": ("golden", "a folder"),
    "golden of a model": ("golden", *SQUEEZE[:-2], "--layers", "conv"),
    "diff": ("diff", "a folder", "a folder", "--format", "json"),
    "pictures": ("diff", "one image", "one image", "--pictures", "the page"),
    "compare": ("compare", *SQUEEZE[:-2], "--against", "threads=1", "--format", "json"),
    "pictures of a comparison": (
        *("compare", *SQUEEZE[:-2], "--against", "dtype=bfloat16", "--blame"),
        *("--pictures", "the live page", "--rtol", "1"),
    ),
    "ablate": ("ablate", "net.py:Net", "photos/p00.png", "photos/p01.png", *CPU),
    "layers": ("layers", MODEL),
    "models": ("models",),
    "export": ("export", "one image", "--to", "csv", "--layers", "classifier.1"),
    "report": ("report", "a focus", "--single-file"),
}
WITHOUT_FOLDER = (
    *("golden", "golden of a model", "diff", "pictures", "compare", "pictures of a comparison"),
    *("ablate", "layers", "models", "export", "report"),
)

DRIVER = """
import contextlib, json, sys
from hookcli.__main__ import _run
from hookcli.cli import memory

memory.collect_rarely()
for name, words in json.loads(sys.stdin.read()).items():
    sys.argv = ["hookcli", *words]
    with open(f"{name}.txt", "w") as out, contextlib.redirect_stdout(out):
        assert _run() == 0, words
"""


def run_all(folder, seed, commands):
    """Run the commands in ``folder``: in this process, or in one whose sets have an order of their
    own."""
    folder.mkdir()
    for name in ("net.py", "squeeze.py", "photos", "cat.png"):
        (folder / name).symlink_to(folder.parent / name)
    request = {
        name: [*words, *(() if name in WITHOUT_FOLDER else ("-o", name, "--format", "json"))]
        for name, words in commands.items()
    }
    if not seed:
        for name, words in request.items():
            ended = run_in(folder, *words)
            assert ended.code == 0, ended.err
            (folder / f"{name}.txt").write_text(ended.out)
        return
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=folder,
        env={name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES"}}
        | {"PYTHONHASHSEED": str(seed)},
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The same commands in two folders and processes, in the second with worker processes."""
    home = tmp_path_factory.mktemp("home")
    (home / "net.py").write_text(SMALL_NET)
    (home / "squeeze.py").write_text(SQUEEZED)
    (home / "cat.png").symlink_to(PHOTOS / "cat.png")
    (home / "photos").mkdir()
    for number in range(40):  # more than a part
        noise = np.random.default_rng(number).integers(0, 256, (12, 9 + number % 3, 3))
        Image.fromarray(noise.astype(np.uint8)).save(home / f"photos/p{number:02}.png")
    run_all(home / "one", 0, COMMANDS)
    run_all(home / "two", 2, COMMANDS | {"a folder": (*MANY, "--workers", "2")})
    return home


def differences(one, two):
    """What ``diff -r`` says, without the names of the folders."""
    done = subprocess.run(["diff", "-r", one, two], capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_FOLDER])
def test_the_same_command_twice_gives_the_same_run_folder(home, name):
    assert differences(home / "one" / name, home / "two" / name) == ""
    assert (home / "one" / name / "manifest.json").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_command_twice_prints_the_same(home, name):
    first, second = ((home / folder / f"{name}.txt").read_bytes() for folder in ("one", "two"))
    assert first
    assert first == second


def test_the_same_diff_twice_gives_the_same_page(home):
    assert differences(home / "one/the page", home / "two/the page") == ""
    assert (home / "one/the page/report.html").exists()


def test_the_same_comparison_twice_gives_the_same_page(home):
    assert differences(home / "one/the live page", home / "two/the live page") == ""
    assert len([*(home / "one/the live page").glob("[!.]*")]) == 6


def test_what_is_compared_holds_every_kind_of_file(home):
    root = home / "one"
    kinds = {file.relative_to(root).parts[1] for file in root.rglob("*/*") if file.is_file()}
    assert kinds >= {
        *("run.json", "manifest.json", "report.json", "report.html", "layers.csv"),
        *("records.parquet", "grids", "sheets", "seen", "tensors", "overview.png"),
        *("gradient_flow.png", "cam", "heat", "saliency", "top_images.csv", "thumbnails"),
    }
    parts = [p.name for p in (root / "a folder/records.parquet").iterdir()]
    assert sorted(parts) == ["part-000000.parquet", "part-000001.parquet"]


def test_files_that_differ_are_seen(home):
    (home / "four").mkdir()
    (home / "four/run.json").write_text("other")
    said = differences(home / "one/a focus", home / "four")
    assert "run.json" in said
    assert f"Only in {home / 'one/a focus'}: manifest.json" in said
