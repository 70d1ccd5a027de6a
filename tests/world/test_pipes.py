"""The command in a pipeline: JSON lines, stdout with or without a terminal, and closed pipes."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.processes import COMMAND, start
from tests.toy_models import SMALL_NET

PLAIN = ("--device", "cpu", "--layers", "leaf")
LISTS = {
    "inspect": ("inspect", "net.py:Net", "pixels.npy", "nan.npy", *PLAIN),
    "gradients": ("gradients", "net.py:Net", "pixels.npy", *PLAIN),
    "ablate": ("ablate", "net.py:Net", "pixels.npy", *PLAIN),
    "sensitivity": ("sensitivity", "net.py:Net", "pixels.npy", "--device", "cpu", "--to", "int8"),
    "compare": ("compare", "net.py:Net", "pixels.npy", *PLAIN, "--against", "threads=1"),
    "layers": ("layers", "net.py:Net"),
    "models": ("models", "resnet*"),
}
ROWS = {"inspect": "layers", "gradients": "layers", "compare": "layers", "ablate": "channels"}
ROWS["sensitivity"] = "layers"


@pytest.fixture(autouse=True)
def small_net():
    write_small_net()


def write_small_net():
    Path("net.py").write_text(SMALL_NET)
    pixels = np.stack([np.full((2, 2), v, np.float32) for v in (3.0, -4.0, 0.0)])
    np.save("pixels.npy", pixels)
    pixels[0, 0, 0] = np.nan
    np.save("nan.npy", pixels)


def strict(line):
    """Return the content of a JSON line, and refuse NaN and Infinity, which JSON does not have."""
    return json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


# --- lines of JSON


@pytest.mark.parametrize("command", LISTS)
def test_jsonl_is_the_rows_of_the_document_with_the_columns_of_csv(run, command):
    document = strict(run(*LISTS[command], "--format", "json").out)
    text = run(*LISTS[command], "--format", "jsonl").out
    lines = [strict(line) for line in text.splitlines()]
    header, *rows = csv.reader(io.StringIO(run(*LISTS[command], "--format", "csv").out))
    assert lines == [{"schema_version": 1} | row for row in document[ROWS.get(command, command)]]
    assert [list(line) for line in lines] == [["schema_version", *header]] * len(rows)
    assert len(lines) > 1


def test_facts_beside_the_rows_are_reported_on_stderr(run):
    Path("text.png").write_text("hello")
    code, out, err = run(*LISTS["inspect"], "text.png", "-o", "out", "--format", "jsonl")
    assert (code, len(out.splitlines())) == (6, 4)  # conv, relu twice, fc
    assert "not called: head: " in err
    assert "warning: skipped 'text.png': " in err


# --- files that were written


@pytest.fixture
def saved(run):
    assert run(*LISTS["inspect"], "--save", "tensors", "-o", "out").code == 0


@pytest.fixture
def exported(saved, run):
    return {
        form: run("export", "out", "--to", "npy", "-o", form, "--format", form).out
        for form in ("text", "json", "jsonl")
    }


def test_export_tells_which_file_is_of_which_call(exported):
    names = ["conv.npy", "relu.npy", "relu_1.npy", "fc.npy", "images.csv"]
    rows = list(
        zip(
            names,
            ["conv", "relu", "relu#1", "fc", ""],
            [[2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 2, 2], [2, 2], None],
            strict=True,
        )
    )
    assert exported["text"].splitlines() == [f"text/{name}" for name in names]
    assert strict(exported["json"]) == {
        "schema_version": 1,
        "files": [{"file": f"json/{f}", "call_id": c, "shape": s} for f, c, s in rows],
    }
    assert [strict(line) for line in exported["jsonl"].splitlines()] == [
        {"schema_version": 1, "file": f"jsonl/{f}", "call_id": c, "shape": s} for f, c, s in rows
    ]
    for name, _, shape in rows[:-1]:
        assert list(np.load(f"json/{name}").shape) == shape


def test_report_tells_what_is_missing_in_its_document(saved, run):
    missing = next(Path("out/grids").rglob("*.png"))
    missing.unlink()
    row = {"file": "out/report.html", "call_id": "", "shape": None}
    assert run("report", "out").out == "out/report.html\n"
    assert strict(run("report", "out", "--format", "jsonl").out) == {"schema_version": 1} | row
    assert strict(run("report", "out", "--format", "json").out) == {
        "schema_version": 1,
        "files": [row],
        "complete": True,
        "missing": [str(missing.relative_to("out"))],
    }


# --- readers that leave, and disks that are full

# All in one fork of this process, in which no gradients can be computed. Each command gets a
# stdout of its own, and is ended by what the console script calls.
DRIVER = """
import json, os, sys, threading
from pathlib import Path
from hookcli.__main__ import main
from hookcli.cli import memory

memory.end_process = sys.exit  # which lets the next command run here


def read_a_line(number):
    while os.read(number, 1) not in (b"\\n", b""):
        pass
    os.close(number)


def run(mode, words):
    mode = mode.partition(",")[0]
    with open("err.txt", "wb") as err:
        os.dup2(err.fileno(), 2)
    reader, writer = os.pipe()
    if mode == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    else:
        os.dup2(writer, 1)
    os.close(writer)
    if mode == "line":
        threading.Thread(target=read_a_line, args=[reader]).start()
    else:
        os.close(reader)
    sys.argv = ["hookcli", *words]
    sys.stdout = open(1, "w", closefd=False)  # as Python begins
    try:
        main()
    except SystemExit as leave:
        return leave.code, open("err.txt").read()


ended = {
    mode: {name: run(mode, words) for name, words in commands.items()}
    for mode, commands in json.loads(Path("request.json").read_text()).items()
}
Path("ended.json").write_text(json.dumps(ended))
"""
QUIET = ("--grids", "none", "-q", "-o", "out", "--overwrite")
EVERY = {
    f"{name} {form}": (
        *words,
        "--format",
        form,
        *(QUIET if name == "inspect" else ()),
    )
    for name, words in LISTS.items()
    if name != "gradients"
    for form in ("table", "json", "jsonl", "csv", "md")
} | {
    "inspect": ("inspect", "net.py:Net", "pixels.npy", *PLAIN, "--save", "tensors", *QUIET),
    **{f"report {form}": ("report", "out", "--format", form) for form in ("text", "json", "jsonl")},
    **{
        f"export {form}": ("export", "out", "--to", "npy", "--overwrite", "--format", form)
        for form in ("text", "json", "jsonl")
    },
    **{
        f"diff {form}": ("diff", "out", "out", "--format", form)
        for form in ("table", "json", "jsonl", "csv", "md")
    },
    "golden": ("golden", "out"),
    "golden of a model": ("golden", "net.py:Net", "pixels.npy", *PLAIN, "-q"),
    "schema": ("schema",),
    "help": ("--help",),
    "help of a command": ("ablate", "--help"),
    "version": ("--version",),
}
# Each command and each format, but not each pair of them.
FEWER = {
    name: words for index, (name, words) in enumerate(EVERY.items()) if index >= 25 or index % 6 < 2
}
MODES = {"at once": FEWER, "line": {name.split()[0]: words for name, words in FEWER.items()}}
# What a run with an image that is skipped ends with, in its own folder.
SKIPS = ("inspect", "net.py:Net", "pixels.npy", "text.png", "--device", "cpu", "-o")
CODES = {
    "at once": {"skipped": 6, "a rule": 7},
    "full": {"a rule": 5},
}
RULES = {"skipped": (), "a rule": ("--fail-on", "skipped")}
ITS_TALK = re.compile(
    r"warning: the weights are as net\.py:Net made them, trained or not\n"
    r"|net\.py:Net: 6 channels of 3 layers, 1 image, 2 forwards of up to 6\n"
    r"|net\.py:Net: 2 layers, 1 image, 4 passes\n"
    r"|all 2 layers rounded to int8: .+\n"
    r"|not (called|rounded): head: .+\n"
    r"|no difference: 4 calls of 1 image hold; .+\n"
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    with contextlib.chdir(tmp_path_factory.mktemp("ended")):
        write_small_net()
        Path("text.png").write_text("hello")
        request = MODES | {"full": FEWER}
        request |= {
            f"{mode}, codes": {name: (*SKIPS, f"{name} {mode}", *RULES[name]) for name in codes}
            for mode, codes in CODES.items()
        }
        Path("request.json").write_text(json.dumps(request))
        running = start(DRIVER, err="driver.txt")
        running.join()
        assert running.exitcode == 0, Path("driver.txt").read_text()
        return json.loads(Path("ended.json").read_text()) | {
            "files": [str(file) for file in Path().rglob("*")]
        }


def told(ended):
    return {name: (code, ITS_TALK.sub("", err)) for name, (code, err) in ended.items()}


@pytest.mark.parametrize("mode", MODES)
def test_a_reader_that_leaves_is_no_error_of_any_command_in_any_format(ended, mode):
    ends = told(ended[mode])
    assert {name: end for name, end in ends.items() if end != (0, "")} == {}
    assert ends.keys() == MODES[mode].keys()
    forms = {tuple(name.split()) for name in FEWER if name.partition(" ")[0] in LISTS}
    assert {name for name, *_ in forms} == LISTS.keys() - {"gradients"}
    assert {form for _, *rest in forms for form in rest} == {"table", "json", "jsonl", "csv", "md"}


def test_a_full_disk_behind_stdout_is_an_error_of_every_command_in_every_format(ended):
    said = re.compile("error: cannot write to stdout: [Nn]o space left( on device)?\n")
    ends = told(ended["full"])
    assert {n: end for n, end in ends.items() if end[0] != 5 or not said.fullmatch(end[1])} == {}
    assert ends.keys() == FEWER.keys()


@pytest.mark.parametrize("mode", CODES)
def test_a_full_disk_outranks_other_exit_codes_and_a_closed_pipe_changes_none(ended, mode):
    assert {name: code for name, (code, _) in ended[f"{mode}, codes"].items()} == CODES[mode]


def test_a_run_is_done_though_a_full_disk_cannot_take_its_table(ended):
    assert ended["full, codes"]["a rule"][1].endswith(
        "error: cannot write to stdout: No space left on device\n"
    )
    assert {"a rule full/manifest.json", "a rule full/report.html"} <= set(ended["files"])


@pytest.mark.parametrize(("words", "code"), [("schema", 0), ("report no", 2)])
def test_streams_that_are_closed_leave_no_trace_and_the_code_as_it_is(words, code):
    script = f"{sys.executable} -m hookcli {words} <&- >&- 2>&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr
    assert "ignored" not in done.stdout + done.stderr


def test_a_run_is_whole_though_all_its_streams_are_closed():
    closed = "import os, sys; sys.stdin = sys.stdout = sys.stderr = None; os.closerange(0, 3); "
    words = ("--format", "jsonl", "-o", "out", "--workers", "2")
    running = start(closed + COMMAND, *LISTS["inspect"], *words)
    running.join()
    assert running.exitcode == 0
    listed = json.loads(Path("out/manifest.json").read_text())["files"]
    there = [str(f.relative_to("out")) for f in Path("out").rglob("[!.]*") if f.is_file()]
    assert sorted(there) == sorted([*listed, "manifest.json"])
    for file in Path("out/grids").rglob("*.png"):
        assert file.read_bytes().startswith(b"\x89PNG")


def test_what_a_model_and_its_programs_and_libraries_print_is_not_among_the_data():
    loud = """
import ctypes, os
from net import *

print("from its import")

class Loud(Net):
    def forward(self, x):
        print("from Python")
        os.system("echo from a program")
        os.write(1, b"from below Python\\n")
        ctypes.CDLL(None).puts(b"from a library")
        return super().forward(x)
"""
    Path("loud.py").write_text(loud)
    words = ("ablate", "loud.py:Loud", "pixels.npy", *PLAIN, "--format", "json")
    start(COMMAND, *words, out="out.txt", err="err.txt").join()
    assert strict(Path("out.txt").read_text())["command"][1] == "ablate"
    said = Path("err.txt").read_text()
    for source in ("its import", "Python", "a program", "below Python", "a library"):
        assert f"from {source}\n" in said
