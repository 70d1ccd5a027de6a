"""No command changes or deletes a file that no run is known to have written.

The tests make random folders: foreign files under all the names that a run writes, links, complete
runs, and runs that were killed. Afterwards every byte that is not part of a run is unchanged.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookcli.run import pipeline
from tests.toy_runs import run_of

NET = """
import torch
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(512, 2))
"""
NAMES = (
    *("notes.txt", "run.json", "manifest.json", "layers.csv", "skipped.csv", "top_images.csv"),
    *("report.html", "report.json", "overview.png", "gradient_flow.png"),
    *("records.parquet/part-000000.parquet", "records.parquet/part-000009.parquet"),
    *("records.parquet/notes.txt", "records.parquet", "seen/cat.jpg", "seen/mine.jpg", "seen"),
    *("sheets/cat.png", "sheets", "grids/cat/001_0.png", "grids/cat/999_mine.png"),
    *("grids/cat/mine.png", "grids/mine/001_0.png", "maps/cat/001_0.png", "grids/cat", "grids"),
    *("tensors/index.json", "tensors/shard-000000.safetensors", "tensors/mine.safetensors"),
    *("tensors", "parts/000000.json", "parts/1abc.json", "parts/top.json", "parts/top.npz"),
    *("parts/notes.txt", "parts/deep/notes.txt", "parts/written.jsonl", "parts"),
    *("cam/cat/001_0.png", "cam", "heat/cat/001_0.png", "saliency/cat.png"),
    *(".partial-layers.csv", ".partial-run.json", "seen/.partial-cat.jpg", "conv.npy", "0.npy"),
    *("images.csv", "0.csv", ".hookcli-export.json", "01_0.png", "golden.json", "02_mine.png"),
)
OTHERS_TEXTS = (
    *(b"mine", b"", b"{}", b"[]", b'{"hookcli": "0.1.0"}', b'{"files": ["notes.txt"]}'),
    b'{"schema_version": 1, "files": ["notes.txt", "../outside.txt"], "command": ["other", "run"]}',
    b'{"schema_version": 9, "hookcli": "9", "command": ["hookcli", "inspect"]}',
)
OUT = "hookcli-runs/net.py_make-cat"  # where a run goes that is not told where
PLAIN = ("--device", "cpu", "--size", "16", "--layers", "leaf", "-q")


def inspect(*words):
    return ("inspect", "net.py:make", "cat.png", *PLAIN, *words)


def list_commands():
    """Every command that writes, or reads a folder, with and without what lets it replace
    things.
    """
    ways = ((), ("--overwrite",), ("--resume",), ("-o", OUT), ("-o", OUT, "--overwrite"))
    ways += (("-o", OUT, "--resume"),)
    more = ((), ("--save", "tensors"), ("--grids", "sheet", "--overview"), ("--grids", "none"))
    for way in ways:
        yield from (inspect(*way, *options) for options in more)
        yield ("gradients", "net.py:make", "cat.png", *PLAIN, "--cam", "0", "--saliency", *way)
    yield (
        *("ablate", "net.py:make", "cat.png", "--device", "cpu", "--size", "16", "--layers"),
        *("0", "-q"),
    )
    yield ("golden", "net.py:make", "cat.png", *PLAIN, "-o", f"{OUT}/golden.json")
    yield ("golden", OUT, "-o", f"{OUT}/golden.json")
    yield ("report", OUT)
    yield ("report", OUT, "--single-file")
    yield ("diff", "a", "b", "--pictures", OUT)
    yield ("diff", OUT, "a")
    for overwrite in ((), ("--overwrite",)):
        yield ("export", "a", "--to", "npy", "-o", OUT, *overwrite)
        yield ("export", "a", "--to", "csv", "-o", OUT, *overwrite)
        yield ("export", OUT, "--to", "npy", "-o", OUT, *overwrite)


def snapshot(root="."):
    """Return the bytes of every file, the target of every link, and nothing for a folder."""
    found = {}
    for path in sorted(Path(root).rglob("*")):
        if path.is_symlink():
            found[str(path)] = f"link to {path.readlink()}"
        else:
            found[str(path)] = path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    Path(home, "net.py").write_text(NET)
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    Image.fromarray(colours).resize((300, 300)).save(home / "cat.png")
    values = np.arange(32, dtype="f4").reshape(1, 2, 4, 4)
    run_of(**{"0": values}).write(home / "a")
    run_of(**{"0": values + 1}).write(home / "b")
    (home / "outside/cat").mkdir(parents=True)
    for name in ("outside/layers.csv", "outside/cat/001_0.png", "outside/cat.jpg", "outside.txt"):
        Path(home, name).write_text("outside")
    return home


@pytest.fixture
def world(home, tmp_path):
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    return tmp_path


def begin_run(run, monkeypatch, dice):
    state = dice.choice(["none", "none", "complete", "killed", "killed early", "empty"])
    if state == "none":
        Path(OUT).mkdir(parents=True)
    elif state == "empty":
        Path(OUT).mkdir(parents=True)
        Path(OUT, "run.json").touch()
    else:
        ways = [(), ("--save", "tensors"), ("--grids", "sheet", "--overview"), ("--cam", "0")]
        options = dice.choice(ways)
        first = "gradients" if "--cam" in options else "inspect"
        with monkeypatch.context() as patch:
            if state != "complete":
                name = "close_run" if state == "killed" else "_read_chunks"
                patch.setattr(pipeline, name, interrupt)
            ended = run(first, *inspect(*options)[1:])
        assert ended.code == (0 if state == "complete" else 130), ended.err
    return state


def interrupt(*_args, **_words):
    raise KeyboardInterrupt


def add_strangers(dice, state):
    """Files and links of somebody else, where nothing stands yet.

    Of a run that was killed what is called ``.partial-NAME`` is its own, half written.
    """
    for name in dice.sample(NAMES, dice.choice([0, 1, 1, 2, 3, 6])):
        path = Path(OUT, name)
        if ".partial-" in name and state.startswith("killed"):
            continue
        if os.path.lexists(path) or not all(
            p.is_dir() or not os.path.lexists(p) for p in path.parents
        ):
            continue
        if any(p.is_symlink() for p in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        is_folder = name in (
            *("seen", "sheets", "grids", "grids/cat", "tensors", "parts"),
            *("cam", "records.parquet"),
        )
        if is_folder or dice.random() < 0.2:
            outside = (
                ("outside", "outside/cat") if is_folder else ("outside.txt", "outside/layers.csv")
            )
            target = dice.choice([*map(os.path.abspath, outside), "nowhere"])
            path.symlink_to(target)
        else:
            path.write_bytes(dice.choice(OTHERS_TEXTS))


def one_world(run, monkeypatch, seed):
    dice = random.Random(seed)
    state = begin_run(run, monkeypatch, dice)
    own = snapshot(OUT)
    add_strangers(dice, state)
    before = snapshot()
    words = dice.choice(list(list_commands()))
    ended = run(*words)
    after = snapshot()
    assert ended.code in (0, 2, 4, 5, 7), (words, ended)
    assert "Traceback" not in ended.err
    strangers = {name: what for name, what in before.items() if name not in own}
    changed = [
        name for name, what in strangers.items() if what is not None and after.get(name) != what
    ]
    assert changed == [], (seed, words, ended.err)
    new = [name for name in after if name not in before and not name.startswith("hookcli-runs/")]
    assert [name for name in new if not name.startswith(("__pycache__", "cache", "hookcli-"))] == []
    assert not [name for name in after if "/.partial-" in name and name not in before]
    if ended.code == 5:
        assert {n: after[n] for n in own if n in after} == own, (words, ended.err)
    return words, ended


@pytest.mark.parametrize("seed", range(36))
def test_nothing_of_somebody_elses_is_changed(run, monkeypatch, world, seed):
    one_world(run, monkeypatch, seed)


def test_overwrite_works_among_strangers_files_where_no_name_collides(run, world):
    foreign = (
        *("notes.txt", "parts/notes.txt", "parts/1abc.json", "seen/mine.jpg"),
        *("grids/mine/001_0.png", "maps/mine/001_0.png", "overview.png"),
        *("tensors/index.json", "records.parquet/notes.txt"),
    )
    for name in foreign:
        Path(OUT, name).parent.mkdir(parents=True, exist_ok=True)
        Path(OUT, name).write_text("mine")
    assert run(*inspect("-o", OUT)).code == 5
    for words in (inspect("-o", OUT, "--overwrite"), inspect("-o", OUT, "--overwrite")):
        ended = run(*words)
        assert ended.code == 0, ended.err
        assert {Path(OUT, name).read_text() for name in foreign} == {"mine"}
    assert json.loads(Path(OUT, "manifest.json").read_bytes())["files"] == [
        *("grids/cat/001_0.png", "grids/cat/002_1.png", "grids/cat/003_2.png"),
        *("grids/cat/004_3.png", "layers.csv", "maps/cat/001_0.png", "maps/cat/002_1.png"),
        *("records.parquet/part-000000.parquet", "report.html", "report.json"),
        *("run.json", "seen/cat.jpg"),
    ]
