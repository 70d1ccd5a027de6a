"""The same command twice gives the same bytes, on the CPU: in the run folder and on stdout.

The second time in a process without what only POSIX has, which spawns others, as on Windows.
"""

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
SQUEEZE = ("squeeze.py:Squeezed", "cat.png", "--weights", "random", "--size", "64", *CPU)
FEW = (*SQUEEZE, "--top", "4")
NET = ("net.py:Net", "photos", *CPU, "--layers", "leaf", "--batch-size", "8")
MANY = ("inspect", *NET, "--sketch", "--save", "tensors", "--grids", "sheet", "--tile", "8")
AGAINST = ("--against", "dtype=bfloat16", "--blame", "--rtol", "1")
EDITS = ("--edit", "conv[2]{1,3}:zero", "--prune", "conv=0.5:random")
# name: the words; what a command prints is in a file of that name, and a run in a folder
COMMANDS = {
    "one image": ("inspect", *FEW, "--overview", "--save", "tensors", "--layers", "conv"),
    "edits": ("inspect", *FEW, *EDITS, "--heat", "mean", "--layers", "conv[2:3]"),
    "gradients": (
        *("gradients", *FEW, "--cam", "features.3", "--saliency"),
        *("--edit", "param:*.bias:zero", "--layers", "conv[1:2]"),
    ),
    "a folder": (*MANY, "--workers", "0"),
    "golden": ("golden", "a folder", "-o", "golden.json"),
    "diff": ("diff", "a folder", "golden.json", "--format", "json"),
    "compare": ("compare", *SQUEEZE, *AGAINST, "--pictures", "the page"),
    "ablate": ("ablate", "net.py:Net", "photos/p00.png", "photos/p01.png", *CPU),
    "sensitivity": ("sensitivity", "net.py:Net", "photos/p00.png", *CPU, "--to", "int8"),
    "map": ("map", "a folder", "--layers", "conv", "-o", "the map"),
    "export": ("export", "one image", "--to", "csv", "--layers", "classifier.1"),
    "report": ("report", "one image", "--single-file"),
}
RUNS = ("one image", "edits", "gradients", "a folder")

DRIVER = """
import builtins, contextlib, json, multiprocessing, os, signal, sys

GONE = {"fcntl", "resource", "pwd", "grp", "termios"}
plain = builtins.__import__

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    if name in GONE and (globals or {}).get("__name__", "").startswith("hookcli"):
        raise ModuleNotFoundError(name)
    return plain(name, globals, locals, fromlist, level)

builtins.__import__ = refuse
del signal.SIGHUP, os.getuid, os.mkfifo
if __name__ == "__mp_main__":
    open("../spawned", "w").close()
if __name__ == "__main__":
    from hookcli.__main__ import _run
    from hookcli.cli import memory

    multiprocessing.set_start_method("spawn")
    memory.collect_rarely()
    for name, words in json.loads(sys.stdin.read()).items():
        sys.argv = ["hookcli", *words]
        with open(f"{name}.txt", "w") as out, contextlib.redirect_stdout(out):
            assert _run() == 0, words
"""


def make_folder(folder, commands):
    folder.mkdir()
    for name in ("net.py", "squeeze.py", "photos", "cat.png"):
        (folder / name).symlink_to(folder.parent / name)
    return {
        name: [*words, *(("-o", name, "--format", "json") if name in RUNS else ())]
        for name, words in commands.items()
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The same commands in two folders and processes, in the second with another order of sets."""
    home = tmp_path_factory.mktemp("home")
    (home / "net.py").write_text(SMALL_NET)
    (home / "squeeze.py").write_text(SQUEEZED)
    (home / "cat.png").symlink_to(PHOTOS / "cat.png")
    (home / "photos").mkdir()
    for number in range(40):  # more than a part
        noise = np.random.default_rng(number).integers(0, 256, (12, 9 + number % 3, 3))
        Image.fromarray(noise.astype(np.uint8)).save(home / f"photos/p{number:02}.png")
    for name, words in make_folder(home / "one", COMMANDS).items():
        ended = run_in(home / "one", *words)
        assert ended.code == 0, ended.err
        (home / "one" / f"{name}.txt").write_text(ended.out)
    request = make_folder(home / "two", COMMANDS | {"a folder": (*MANY, "--workers", "1")})
    (home / "driver.py").write_text(DRIVER)
    gone = {"COLUMNS", "LINES"}
    done = subprocess.run(
        [sys.executable, "../driver.py"],
        cwd=home / "two",
        env={name: os.environ[name] for name in os.environ.keys() - gone} | {"PYTHONHASHSEED": "2"},
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (home / "spawned").exists()
    return home


def test_the_same_commands_twice_write_and_print_the_same_bytes(home):
    words = ["diff", "-r", "-x", "cache", "-x", "__pycache__", home / "one", home / "two"]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == ""


def test_what_is_compared_holds_every_kind_of_file(home):
    root = home / "one"
    kinds = {file.relative_to(root).parts[1] for file in root.rglob("*/*") if file.is_file()}
    assert kinds >= {
        *("run.json", "manifest.json", "report.json", "report.html", "layers.csv"),
        *("records.parquet", "grids", "sheets", "seen", "tensors", "overview.png"),
        *("gradient_flow.png", "cam", "heat", "saliency", "top_images.csv", "thumbnails"),
        *("map.csv", "analysis.json"),
    }
    parts = [p.name for p in (root / "a folder/records.parquet").iterdir()]
    assert sorted(parts) == ["part-000000.parquet", "part-000001.parquet"]
    assert all(file.stat().st_size for file in root.glob("*.txt"))
