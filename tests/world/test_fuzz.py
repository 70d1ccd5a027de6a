"""Every file of a run folder, and golden files, damaged at random: one line of error at most, no
traceback, no hang.

20,000 cases in one process. Bits fall over, ends are cut off, and values of JSON are put in the
place of others, or of what no run writes.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hookcli.errors import HookcliError
from hookcli.reading.load import load_run
from hookcli.reading.report import remake_report
from hookcli.run import pipeline
from hookcli.store import chunks
from tests.world.test_strangers import interrupt

pytestmark = pytest.mark.slow

NET = """
from torch import nn


def make():
    return nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128, 2))
"""
WORDS = (
    *("inspect", "net.py:make", "photos", "--device", "cpu", "--size", "8", "--resize", "8"),
    *("--layers", "leaf"),
)
SECONDS = 20  # of a case, at most; most take milliseconds
CASES, BLOCKS = 20_000, 20
HOSTILE = (
    None,
    True,
    0,
    -1,
    5,
    10**400,
    -(10**30),
    1.5,
    1e308,
    -1e-320,
    *("", "x", "../../outside.txt", "/etc/passwd", "a\0b", "\ud800"),
    "x" * 5000,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    ["../outside.txt"],
    {"shard": "../x"},
    [1, -1, 5],
    [2**40, 2**40],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture
def home(folder, run, monkeypatch):
    """A complete run with tensors and sketches, one that was killed in its third part, and a
    golden file."""
    monkeypatch.chdir(folder)
    if Path("done").exists():
        return folder
    Path("net.py").write_text(NET)
    Path("photos").mkdir()
    dice = np.random.default_rng(0)
    for number in range(70):
        colours = dice.integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(colours).save(f"photos/{number:02}.png")
    words = ("--save", "tensors", "--sketch", "--grids", "layers")
    few = ("inspect", "net.py:make", "photos/00.png", "photos/01.png", *WORDS[3:])
    assert run(*few, *words, "-o", "done").code == 0
    assert run("golden", "done", "-o", "golden.json").code == 0
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "close_run", interrupt)
        assert run(*WORDS, "-o", "killed").code == 130
    Path("outside.txt").write_text("outside")
    return folder


def damage(data: bytes, dice: random.Random) -> bytes:
    """The bytes of a file as they might be after an accident, or made by somebody who means
    harm.
    """
    kind = dice.choice(["bits", "cut", "json", "json", "json", "zeros", "junk", "twice"])
    if kind == "json":
        try:
            return json.dumps(swap(json.loads(data), dice)).encode()
        except (ValueError, UnicodeDecodeError):
            kind = "bits"
    if not data or kind == "junk":
        return dice.randbytes(dice.choice([0, 1, 8, 300])) + b"[" * dice.choice([0, 200_000])
    if kind == "cut":
        return data[: dice.randrange(len(data))]
    if kind == "twice":
        return data + data
    changed = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        offset = dice.randrange(len(changed))
        if kind == "zeros":
            changed[offset : offset + dice.choice([1, 8, 64])] = bytes(dice.choice([1, 8, 64]))
        else:
            changed[offset] ^= 1 << dice.randrange(8)
    return bytes(changed)


def swap(document, dice):
    """The document with one value in another's place, or with one that nobody writes, or without
    it."""
    found = list(walk(document))
    if not found:
        return dice.choice(HOSTILE)
    for _ in range(dice.choice([1, 1, 1, 3])):
        parent, key = dice.choice(found)
        other, its_key = dice.choice(found)
        try:
            if dice.random() < 0.15:
                del parent[key]
            elif dice.random() < 0.5:
                parent[key] = dice.choice(HOSTILE)
            else:
                parent[key] = json.loads(json.dumps(other[its_key]))
        except (KeyError, IndexError):
            continue
    return document


def walk(value):
    if isinstance(value, dict):
        for key in value:
            yield value, key
            yield from walk(value[key])
    elif isinstance(value, list):
        for key in range(min(len(value), 50)):
            yield value, key
            yield from walk(value[key])


def files_of(*roots):
    return sorted(str(f) for root in roots for f in Path(root).rglob("*") if f.is_file())


def choose(names, dice):
    """One of these files, seldom a picture or a page, of which there are many and little is
    read.
    """
    read = [name for name in names if not name.endswith((".png", ".jpg", ".html"))]
    return dice.choice(names if dice.random() < 0.05 else read)


def read_all(name):
    """Everything that a run gives in Python."""
    run = load_run(name)
    _ = run.images, run.layers, run.records.num_rows, repr(run)
    for call_id in run.calls:
        _ = run[call_id], run.images_of(call_id)


def read_parts():
    """What ``--resume`` reads, up to the first part that is damaged."""
    from hookcli.store.locations.directory import Directory
    from hookcli.store.ownership import find_run
    from hookcli.summary.chunks import Chunk
    from hookcli.summary.tally import list_rows

    folder: Any = Directory(Path("killed"))
    find_run(folder)
    found = Chunk()
    chunks.read_top(folder, 70)
    for number in range(3):
        part = chunks.read_chunk(folder, number)
        if part is not None:
            found.merge(part)
    list_rows(found.calls, {}, lambda _call: None)


def in_python(action):
    """Do it; an error of ours is an answer too."""
    try:
        action()
    except HookcliError as error:
        return error.exit_code if "\n" not in error.message else 1
    return 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_file_that_is_damaged_gives_a_line_at_most(home, run, block):
    dice = random.Random(block)
    done, killed = files_of("done"), files_of("killed")
    pristine = {name: Path(name).read_bytes() for name in (*done, *killed, "golden.json")}
    codes = {}
    for case in range(CASES // BLOCKS):
        name = choose([*done, *killed, "golden.json"], dice)
        Path(name).write_bytes(damage(pristine[name], dice))
        signal.alarm(SECONDS)
        try:
            code = one_case(name, dice, run)
        finally:
            signal.alarm(0)
        assert code in (0, 2, 5, 6, 7), (block, case, name)
        codes[code] = codes.get(code, 0) + 1
        Path(name).write_bytes(pristine[name])
        if Path("done/report.html").read_bytes() != pristine["done/report.html"]:
            for each in ("done/report.html", "done/manifest.json"):
                Path(each).write_bytes(pristine[each])
        shutil.rmtree("exported", ignore_errors=True)
        assert Path("outside.txt").read_text() == "outside"
    assert files_of("done") == done
    assert files_of("killed") == killed
    assert codes[2] > 100  # damage is noticed


def one_case(name, dice, run):
    """One of the ways in which a file is read."""
    if name.startswith("killed"):
        return in_python(read_parts)
    if name == "golden.json":
        return run(
            "diff", *dice.choice([("golden.json", "golden.json"), ("done", "golden.json")])
        ).code
    ways = (
        lambda: run("report", "done").code,
        lambda: run("report", "done", "--single-file").code,
        lambda: run("golden", "done").code,
        lambda: run("diff", "done", "done").code,
        lambda: run("export", "done", "--to", dice.choice(["npy", "csv"]), "-o", "exported").code,
        lambda: in_python(lambda: read_all("done")),
        lambda: in_python(lambda: remake_report(Path("done"))),
        lambda: (
            run(
                *WORDS[:2],
                "photos/00.png",
                "photos/01.png",
                *WORDS[3:],
                *("--save", "tensors", "--sketch", "--grids", "layers", "-o", "done"),
                *("--resume", "--dry-run"),
            ).code
        ),
    )
    return dice.choice(ways)()
