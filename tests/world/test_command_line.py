"""The command line as a stranger meets it: exit codes, what goes to which stream, files, hostile
names."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torchvision
from PIL import Image

from hookcli.store.locations.names import LOCK
from hookcli.verbs.subjects import COMMANDS

SMALL = ("--weights", "random", "--size", "64", "--grids", "none", "--device", "cpu")
TWO = (*SMALL, "--layers", "conv[1:2]")
RANDOM = "warning: the weights are RANDOM, as asked for\n"


@pytest.fixture
def inspect(run):
    return lambda *words: run("inspect", "resnet18", *words)


@pytest.fixture
def photo():
    return draw("photo.png")


def draw(name):
    image = Image.new("RGB", (100, 80))
    image.putdata([(2 * x, 3 * y, (x * y) % 256) for y in range(80) for x in range(100)])
    image.save(name, "PNG")
    return name


def contents(folder):
    files = (file for file in Path(folder).rglob("*") if file.is_file() and file.name != LOCK)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


# --- 0, and what a plain run says


def test_a_run_ends_with_0_and_says_what_it_did_on_stderr(inspect, photo):
    ended = inspect(photo, *TWO)
    assert ended.code == 0
    assert ended.err == (
        "resnet18: 2 layers, 1 image, no grids, sketches, about 7 files, up to about 0.3 MB, "
        "into hookcli-runs/resnet18-photo\n"
        f"{RANDOM}"
        "wrote 7 files into hookcli-runs/resnet18-photo\n"
        "open first: hookcli-runs/resnet18-photo/report.html\n"
    )


def test_a_run_shows_a_table_and_no_classes_of_random_weights_on_stdout(inspect, photo):
    header, rule, first, second, weights = inspect(photo, *TWO).out.splitlines()
    assert weights == "weights: random (seed 0), NOT TRAINED: predictions would mean nothing"
    assert header.split()[:6] == ["#", "call", "type", "shape", "layout", "mean"]
    assert set(rule) == {" ", "─"}
    # 64 pixels at stride 2 are 32; a pool halves them again
    assert first.split()[:5] == ["1", "conv1", "Conv2d", "1x64x32x32", "NCHW"]
    assert second.split()[:5] == ["2", "layer1.0.conv1", "Conv2d", "1x64x16x16", "NCHW"]


def test_time_says_how_long_each_stage_took(inspect, photo):
    line = inspect(photo, *TWO, "--quiet", "--time").err.splitlines()[-1]
    stages = "read images|import torch|load model|forward|write grids|write tables"
    assert re.fullmatch(rf"time: (({stages}) \d+\.\d\d s(, )?){{6}}", line)


def test_a_command_leaves_the_model_names_for_completion(inspect, photo):
    inspect(photo, *TWO)
    names = Path(os.environ["XDG_CACHE_HOME"], "hookcli", "models.txt").read_text().split()
    assert names == sorted(torchvision.models.list_models())


def test_model_names_complete_from_that_list(inspect, photo):
    names = Path(os.environ["XDG_CACHE_HOME"], "hookcli", "models.txt")
    names.parent.mkdir(parents=True)
    names.write_text("mynet\nmynet2\nother\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['hookcli']; from hookcli.__main__ import main; main()",
        ],
        env=os.environ
        | {
            "_HOOKCLI_COMPLETE": "complete_bash",
            "COMP_WORDS": "hookcli inspect my",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["mynet", "mynet2"]


# --- 1: a bug; 3: no image; 4: the model; 6: some images


def test_a_bug_ends_with_1_the_whole_traceback_and_where_to_report_it(photo):
    code = (
        "import sys; from hookcli.plan import prepare; prepare.check_run_folder = lambda *a, "
        "**k: 1 / 0\n"
        "sys.argv = ['hookcli', 'inspect', 'resnet18', 'photo.png']\n"
        "from hookcli.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback (most recent call last):" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "report" in done.stderr.splitlines()[-1].lower()


def test_some_skipped_images_end_with_6_and_are_accounted_for(inspect, photo):
    ended = inspect(photo, "no.png", *TWO, "-o", "out")
    assert ended.code == 6
    assert "warning: skipped 'no.png': does not exist\n" in ended.err
    count = len(contents("out"))
    assert f"wrote {count} files into out; 1 image skipped, see skipped.csv\n" in ended.err
    assert Path("out/skipped.csv").read_text() == "file,reason\nno.png,does not exist\n"
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["skipped"] == [{"file": "no.png", "reason": "does not exist"}]


def test_a_dry_run_prints_the_plan_and_writes_nothing(inspect, photo):
    before = contents(".")
    ended = inspect(photo, *TWO, "--grids", "layers", "--dry-run")
    # 2 grids, their channels and 3 tables; 2 x 64 tiles of 64 x 64 pixels, about half a byte each,
    # and as many of 32 x 32 or 16 x 16, a byte each
    line = (
        r"resnet18: 2 layers, 1 image, one grid per layer, sketches, about 11 files, up to "
        r"about 0\.\d MB, into hookcli-runs/resnet18-photo\n"
    )
    assert (ended.code, ended.out) == (0, "")
    assert re.fullmatch(line, ended.err)
    assert contents(".") == before


# --- formats


def strict_json(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_each_column_of_the_table_shows_its_own_statistic(inspect, photo):
    (row, _) = strict_json(inspect(photo, *TWO, "--format", "json").out)["layers"]
    titles, _, first, *_ = inspect(photo, *TWO, "--format", "md").out.splitlines()
    shown = dict(zip(*(line.strip("| ").split(" | ") for line in (titles, first)), strict=True))
    figures = {name: f"{row[name]:.4g}" for name in ("mean", "std", "min", "max")}
    assert {name: shown[name] for name in figures} == figures
    assert shown["zero"] == f"{row['zero_fraction']:.1%}"


def test_hookcli_alone_shows_three_commands_to_start_with(run):
    ended = run()
    commands = [line.split()[1] for line in ended.out.splitlines() if line.startswith("  hookcli")]
    assert (ended.code, ended.err, commands) == (0, "", ["layers", "inspect", "compare"])
    assert ended.out.endswith("All commands: hookcli --help\n")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_summary_of_a_command_fits_a_line_and_its_help_ends_with_examples(run, name):
    lines = run(name, "--help").out.splitlines()
    assert len(f"  {name:9}  {COMMANDS[name]}") <= 80
    examples = lines[lines.index("Examples:") + 1 :]
    assert examples
    assert all(line.startswith(f"  hookcli {name}") and len(line) <= 80 for line in examples)
    assert max(map(len, lines)) <= 80


def figures(rows, name, form):
    return {format(row[name], form) for row in rows if row[name] is not None}


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_a_table_of_figures_fits_80_columns_with_every_figure_whole(inspect, photo, narrow):
    rows = strict_json(inspect(photo, *SMALL, "--layers", "all", "--format", "json").out)["layers"]
    lines = inspect(photo, *SMALL, "--layers", "all").out.splitlines()[:-1]  # then the classes
    words = {word for line in lines for word in line.split()}
    assert max(map(len, lines)) <= 80
    for name in ("mean", "std", "min", "max"):
        assert figures(rows, name, ".4g") <= words
    assert {row["call_id"] for row in rows} <= words


# --- names from strangers

HOSTILE = [
    *(b"a b'c\"d.png", b"\x1b[31mred.png", b"[bold]x.png", b"new\nline.png"),
    *(b"new\n::error::line.png", b"::error::title.png", b"return\r.png"),
    "right\u200fto\u202eleft.png".encode(),
    b"not\xffutf8.png",
    b"=1+1.png",
    b"%41|`a`.png",
    b"n" * 251 + b".png",
]


def unquoted(text):
    """The bytes that a stored name stands for: ``%XX`` are those of a name that is not UTF-8."""
    return re.sub(rb"%([0-9A-F]{2})", lambda code: bytes([int(code[1], 16)]), text.encode())


def test_hostile_names_do_nothing_to_the_terminal_and_can_be_read_back(inspect):
    ended = inspect(*(draw(os.fsdecode(raw)) for raw in HOSTILE), *TWO, "-o", "out")
    assert ended.code == 0
    assert len(ended.err.splitlines()) == 4
    for line in (ended.out + ended.err).split("\n"):
        assert line.isprintable()
        assert not line.startswith("::")
    images = json.loads(Path("out/manifest.json").read_text())["images"]
    assert [unquoted(image["file"]) for image in images] == HOSTILE


def test_hostile_names_of_skipped_files_are_one_line_and_one_row_each(inspect, photo):
    names = [os.fsdecode(each) for each in HOSTILE]
    for name in names:
        Path(name).write_text("hello")
    ended = inspect(photo, *names, *TWO, "-o", "out", "-q")
    assert ended.code == 6
    assert len(ended.err.splitlines()) == 2, ended.err
    assert all(line.isprintable() for line in ended.err.split("\n"))
    text = Path("out/skipped.csv").read_bytes().decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert [unquoted(file.removeprefix("'")) for file, _ in rows] == HOSTILE
    assert {reason for _, reason in rows} == {"is not a readable image"}


# --- streams and signals


def test_help_and_version_import_no_torch():
    code = (
        "import sys; from hookcli.__main__ import _run\n"
        "for words in (['--help'], ['--version'], [], ['inspect', '--help'], ['layers', '--help'],"
        " ['models', '--help'], ['inspect', 'resnet18', 'no.png'], ['--bogus']):\n"
        "    sys.argv = ['hookcli', *words]; print(_run(), file=sys.stderr)\n"
        "heavy = {'torch', 'torchvision', 'numpy', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes = [line for line in done.stderr.splitlines() if line.isdecimal()]
    assert codes == ["0", "0", "0", "0", "0", "0", "3", "2"]


def test_the_version_is_printed_on_stdout(run):
    ended = run("--version")
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(r"hookcli \d+\.\d+\.\d+\n", ended.out)


LATE = """
import atexit, os, signal, sys, threading
from hookcli import __main__ as program
from hookcli.cli.output import console

signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
def interrupt(*_, **__): signal.raise_signal(signal.SIGINT)

if sys.argv.pop(1) == "end":
    console.close_stdout = interrupt
    atexit.register(interrupt)
    threading._register_atexit(interrupt)
    end, os._exit = os._exit, lambda code: end(interrupt() or code)
else:
    console.print_error, plain = lambda *words: interrupt(plain(*words)), console.print_error
program.main()
"""


@pytest.mark.parametrize(
    ("when", "words", "code"), [("end", ["--version"], 0), ("report", ["diff", "no", "no"], 130)]
)
def test_an_interrupt_that_comes_late_is_no_traceback_and_no_death(when, words, code):
    done = subprocess.run(
        [sys.executable, "-c", LATE, when, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


THREAD = """
import sys, threading, time
from pathlib import Path
from hookcli import __main__ as program

def write(): time.sleep(0.3); Path("late.txt").write_text("done")

threading.Thread(target=write).start()
program.main()
"""


def test_threads_of_foreign_code_end_before_the_process_does():
    done = subprocess.run(
        [sys.executable, "-c", THREAD, "--version"], check=True, capture_output=True
    )
    assert (done.stderr, Path("late.txt").read_text()) == (b"", "done")
