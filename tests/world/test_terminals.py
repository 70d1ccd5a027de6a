"""The output of every command on a colour terminal, on one without colours, and without one."""

from __future__ import annotations

import json
import os
import re
import struct

import numpy as np
import pytest

from tests.conftest import PHOTOS, own_state
from tests.processes import start
from tests.toy_models import SMALL_NET, SQUEEZED

CPU = ("--device", "cpu")
MODEL = "squeeze.py:Squeezed"
SQUEEZE = (MODEL, "cat.png", "--weights", "random", "--size", "32", *CPU)
QUICK = (*SQUEEZE, "--grids", "none")
RUN = "ru\nn"
COMMANDS = {
    "inspect": ("inspect", *QUICK, "--layers", "leaf", "-o", RUN, "--save", "tensors"),
    "ablate": ("ablate", *SQUEEZE, "--layers", "features.3.squeeze"),
    "layers": ("layers", MODEL),
    "models": ("models",),
    "report": ("report", RUN),
    "export": ("export", RUN, "--to", "npy"),
    "golden": ("golden", RUN),
    "diff": ("diff", RUN, RUN),
    "compare": ("compare", *SQUEEZE, "--against", "edit=conv[2]:zero", "--layers", "leaf"),
    "schema": ("schema", "models"),
    "plan": ("inspect", *QUICK, "--dry-run"),
    "a bar": ("inspect", "net.py:Net", *["pixels.npy"] * 70, *CPU, "--grids", "none"),
    "an error": ("inspect", "resnet43", "cat.png"),
    "usage": ("inspect", "resnet18", "cat.png", "--format", "xml"),
}
COMMANDS |= {f"help of {name}": (name, "--help") for name in ("inspect", "layers")}
TABLES = ("inspect", "ablate", "diff", "compare", "layers", "models")

DUMB = ("inspect", "diff", "models", "plan", "a bar", "an error", "usage", "help of inspect")

# How the commands are shown: what the environment says, the columns of the terminal (None:
# there is none), and which commands.
SCENES = {
    "coloured": ({"COLUMNS": "80"}, 200, COMMANDS),
    "no colour": ({"NO_COLOR": "1"}, 80, {name: COMMANDS[name] for name in DUMB}),
    "dumb": ({"TERM": "dumb"}, 80, {name: COMMANDS[name] for name in DUMB}),
    "60": ({"COLUMNS": "60"}, None, COMMANDS),
    "120": (
        {"COLUMNS": "120"},
        None,
        {name: COMMANDS[name] for name in ("inspect", "diff", "layers", "a bar")},
    ),
    "plain": ({}, None, {name: COMMANDS[name] for name in ("inspect", "report")}),
}
# All in one fork of this process, in which no gradients can be computed. A mark on both streams
# stands before each command.
DRIVER = """
import json, os, sys
from pathlib import Path
from hookcli.__main__ import _run

before = dict(os.environ)
for folder, (environment, number, commands) in json.loads(Path(sys.argv[1]).read_text()).items():
    os.environ.clear()
    os.environ |= before | environment
    os.chdir(folder)
    os.dup2(number, 1)
    os.dup2(number, 2)
    os.close(number)
    # as Python begins
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", closefd=False, buffering=1)
    for name, words in commands.items():
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"@@{name}@@")
            stream.flush()
        sys.argv = ["hookcli", *words]
        _run()
    sys.stdout.flush()
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
"""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    fcntl = pytest.importorskip("fcntl")  # not on Windows
    termios = pytest.importorskip("termios")
    home = tmp_path_factory.mktemp("show")
    request, theirs, mine = {}, [], {}
    for name, (environment, columns, commands) in SCENES.items():
        folder = home / name
        folder.mkdir()
        (folder / "net.py").write_text(SMALL_NET)
        (folder / "squeeze.py").write_text(SQUEEZED)
        (folder / "cat.png").write_bytes((PHOTOS / "cat.png").read_bytes())
        np.save(folder / "pixels.npy", np.zeros((3, 2, 2), np.float32))
        mine[name], number = os.pipe() if columns is None else os.openpty()
        if columns is not None:
            size = struct.pack("HHHH", 24, columns, 0, 0)
            fcntl.ioctl(number, termios.TIOCSWINSZ, size)
        theirs.append(number)
        request[str(folder)] = (environment, number, commands)
    (home / "request.json").write_text(json.dumps(request))
    with own_state(home):
        running = start(DRIVER, home / "request.json", TERM="xterm-256color")
    for number in theirs:
        os.close(number)
    texts = {name: b"".join(read_all(number)) for name, number in mine.items()}
    running.join()
    assert running.exitcode == 0, texts
    return {name: split(texts[name], SCENES[name][2]) for name in SCENES}


def split(text, commands):
    parts = re.split("@@(.+?)@@", text.decode().replace("\r\n", "\n"))[1:]
    shown = dict.fromkeys(commands, "")
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        shown[name] += part
    return shown


def read_all(number):
    while True:
        try:
            part = os.read(number, 1 << 16)
        except OSError:  # how a terminal ends on Linux
            part = b""
        if not part:
            os.close(number)
            return
        yield part


def plain(text):
    """Without colours, and without the blanks at the ends of lines that these hid."""
    return re.sub(r" +$", "", re.sub(r"\x1b\[[0-9;]*m", "", text), flags=re.MULTILINE)


def tables(shown):
    """The lines of every table, without colours and what is said beside it.

    The verdict of a comparison is one line, however long: the first, for programs to take.
    """
    for name in [each for each in TABLES if each in shown]:
        words = plain(shown[name])
        talk = ("warning: ", f"{MODEL}: ", "wrote ", "not called: ")
        assert "error: " not in words, words
        verdict = re.compile("no difference: |[^ ]+ differs first: ")
        lines = (line for line in words.splitlines() if not verdict.match(line))
        yield from (line for line in lines if not line.startswith(talk))


def test_a_terminal_gets_colours_a_bar_and_tables_that_fit(scenes):
    coloured = scenes["coloured"]
    escaped = {name for name, text in coloured.items() if "\x1b" in text}
    assert escaped == {*TABLES, "plan", "a bar", "an error", "usage"}
    assert "\x1b[2K" in coloured["a bar"]
    assert 70 < max(map(len, tables(coloured))) <= 80
    assert all(coloured.values())


@pytest.mark.parametrize("scene", ["no colour", "dumb"])
def test_a_terminal_without_colours_gets_the_same_words_and_no_escapes(scenes, scene):
    shown = scenes[scene]
    assert [name for name, text in shown.items() if set("\x1b\r") & set(text)] == []
    assert "images/s" not in shown["a bar"]
    others = [name for name in shown if name != "a bar"]
    assert [name for name in others if plain(scenes["coloured"][name]) != shown[name]] == []


@pytest.mark.parametrize("columns", [60, 120])
def test_without_a_terminal_tables_fit_and_have_no_escapes_and_no_progress_bar(scenes, columns):
    shown = scenes[str(columns)]
    assert [name for name, text in shown.items() if set("\x1b\r") & set(text)] == []
    assert "images/s" not in shown["a bar"]
    lines = list(tables(shown))
    assert [line for line in lines if len(line) > columns] == []
    assert max(map(len, lines)) > columns - 10


def test_a_name_is_on_one_line_of_a_terminal_and_as_it_is_elsewhere(scenes):
    assert scenes["coloured"]["report"] == "ru\\nn/report.html\n"
    assert scenes["plain"]["report"] == "ru\nn/report.html\n"


def test_columns_that_are_no_width_are_left_alone(run, monkeypatch):
    words = ("layers", "tests.toy_models:Squeezed")
    whole = run(*words).out
    for columns in ("-1", "9" * 5000):
        monkeypatch.setenv("COLUMNS", columns)
        assert run(*words).out == whole, columns
