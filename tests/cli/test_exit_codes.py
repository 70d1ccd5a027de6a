"""Every way the command can end, and what it says then."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from hookcli import __main__

SMALL = ("--weights", "random", "--size", "64", "--layers", "conv[1:2]", "--grids", "none")


@pytest.fixture
def photo(tmp_path: Path) -> str:
    Image.linear_gradient("L").convert("RGB").save(tmp_path / "photo.png")
    return "photo.png"


@pytest.fixture
def hookcli(monkeypatch, capfd):
    """Run the command line in this process: exit code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hookcli", *words])
        code = __main__._run()
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


def shell(command: str) -> subprocess.CompletedProcess[str]:
    tool = f"{sys.executable} -m hookcli"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("hookcli", tool, 1)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_that_did_everything_ends_with_0(hookcli, photo):
    code, out, _ = hookcli("inspect", "resnet18", photo, *SMALL)
    assert code == 0
    assert out.splitlines()[2].split()[:4] == ["1", "conv1", "Conv2d", "1x64x32x32"]


REFUSED = {
    "usage": (2, ["inspect", "resnet18", "photo.png", "--wat"]),
    "a value that is no choice": (2, ["inspect", "resnet18", "photo.png", "--rank", "beauty"]),
    "a missing argument": (2, ["inspect", "resnet18"]),
    "an unknown command": (2, ["inspekt"]),
    "an unknown model": (2, ["inspect", "resnet43", "photo.png"]),
    "a pair for a classifier": (
        2,
        ["inspect", "resnet18", "photo.png", *SMALL, "--pair", "photo.png"],
    ),
    "a clip for a classifier": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--clip"]),
    "no layer matched": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--layers", "attention"]),
    "a regular expression": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--layers", "re:("]),
    "no such device": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--device", "cuda:93"]),
    "a strange device": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--device", "gpu"]),
    "channels": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--channels", "3-1"]),
    "a colour map": (
        2,
        ["inspect", "resnet18", "photo.png", "--weights", "random", "--colormap", "nope"],
    ),
    "a model argument": (2, ["inspect", "resnet18", "photo.png", *SMALL, "--model-arg", "x"]),
    "an argument the builder refuses": (
        2,
        [
            "inspect",
            "resnet18",
            "photo.png",
            *SMALL,
            "--model-arg",
            "groups=[]",
            "--model-arg",
            "wat=1",
        ],
    ),
    "no image": (3, ["inspect", "resnet18", "nothing.png"]),
    "weights that do not exist": (
        4,
        ["inspect", "resnet18", "photo.png", "--weights", "IMAGENET9"],
    ),
    "a forward that fails": (
        4,
        ["inspect", "inception_v3", "photo.png", "--weights", "random", "--size", "32"],
    ),
    "a survey that fails": (4, ["layers", "inception_v3", "--size", "32"]),
    "a file in the way": (5, ["inspect", "resnet18", "photo.png", *SMALL, "-o", "photo.png"]),
    "files that are not a run's": (5, ["inspect", "resnet18", "photo.png", *SMALL, "-o", "."]),
    "a folder that cannot be made": (
        5,
        ["inspect", "resnet18", "photo.png", *SMALL, "-o", "photo.png/run"],
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_done_ends_with_its_code_and_at_most_three_lines(hookcli, photo, reason):
    code, words = REFUSED[reason]
    ended, out, err = hookcli(*words)
    talk = [
        line
        for line in err.splitlines()
        if not line.startswith(("warning:", "resnet", "inception"))
    ]
    assert (ended, out) == (code, "")
    assert talk[0].startswith("error: ")
    assert len(talk) <= 3
    assert "Traceback" not in err


def test_near_names_are_offered_for_a_model(hookcli, photo):
    _, _, err = hookcli("inspect", "resnet43", photo)
    assert err.splitlines()[1] == "hint: did you mean resnet34, resnet50, resnet18?"


def test_a_failing_module_is_named_with_what_it_was_given(hookcli, photo):
    words = ("--weights", "random", "--size", "32", "--grids", "none", "-q", "-o", "run")
    _, _, err = hookcli("inspect", "inception_v3", photo, *words)
    error, hint = err.splitlines()[-2:]
    assert error.startswith("error: the model failed in Mixed_6a.branch3x3.conv (Conv2d): ")
    assert "x1x1; its weight is 384x288x3x3; the last observed layers were " in hint


def test_what_was_observed_before_a_failure_is_written_without_a_manifest(hookcli, photo):
    words = ("--weights", "random", "--size", "32", "--grids", "none", "-o", "run")
    hookcli("inspect", "inception_v3", photo, *words)
    assert sorted(file.name for file in Path("run").iterdir()) == [
        "layers.csv",
        "parts",
        "run.json",
    ]
    assert Path("run/layers.csv").read_text().splitlines()[1].startswith("1,Conv2d_1a_3x3.conv,")


def test_how_many_images_were_skipped_stands_in_the_last_line(hookcli, photo):
    Path("text.jpg").write_text("hello")
    words = ("inspect", "resnet18", "text.jpg", photo, *SMALL, "-o", "run")
    _code, _out, err = hookcli(*words)
    count = sum(file.is_file() for file in Path("run").rglob("*"))
    assert err.splitlines()[-1] == f"wrote {count} files into run; 1 image skipped, see skipped.csv"


def test_a_run_that_skipped_an_image_ends_with_6_and_says_which(hookcli, photo):
    Path("text.jpg").write_text("hello")
    code, _out, err = hookcli("inspect", "resnet18", "text.jpg", photo, *SMALL, "-q", "-o", "run")
    assert code == 6
    assert "warning: skipped 'text.jpg': is not an image that can be read" in err.splitlines()
    assert Path("run/skipped.csv").read_text() == (
        "file,reason\ntext.jpg,is not an image that can be read\n"
    )


def test_a_second_run_into_a_named_folder_needs_overwrite(hookcli, photo):
    words = ("inspect", "resnet18", photo, *SMALL, "-q", "-o", "run")
    assert [hookcli(*words)[0], hookcli(*words)[0], hookcli(*words, "--overwrite")[0]] == [0, 5, 0]


def test_the_default_folder_is_replaced_by_the_next_run(hookcli, photo):
    words = ("inspect", "resnet18", photo, *SMALL, "-q")
    assert [hookcli(*words)[0], hookcli(*words)[0]] == [0, 0]
    assert Path("hookcli-runs/resnet18-photo/manifest.json").is_file()


def test_a_folder_in_use_is_refused(hookcli, photo):
    Path("run").mkdir()
    with Path("run/run.json").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = ("inspect", "resnet18", photo, *SMALL, "-q", "-o", "run", "--overwrite")
        code, _, err = hookcli(*words)
    assert code == 5
    assert "error: another run is writing into 'run'" in err.splitlines()


def test_an_interrupt_ends_with_130_without_a_traceback(photo):
    command = [sys.executable, "-m", "hookcli", "inspect", "vit_h_14", photo, "--weights", "random"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        time.sleep(4)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, "Traceback" in err) == (130, False)


def test_a_bug_ends_with_1_and_its_traceback():
    program = (
        "import sys, hookcli.cli.commands.models as m, hookcli.__main__ as e;"
        "m.print_listing = lambda *a, **k: 1 / 0; sys.argv = ['hookcli', 'models']; e.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("words", ["--help", "inspect --help", "models", "models --format json"])
def test_a_reader_that_closes_the_pipe_is_no_error(words):
    done = shell(f"hookcli {words} | head -n 1")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_typer_says_in_several_lines_is_said_in_one(hookcli):
    code, out, err = hookcli("export", "run")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: Missing option '--to'. Choose from: npy, csv",
        "hint: see: hookcli --help, hookcli COMMAND --help",
    ]


@pytest.mark.parametrize(
    ("asked", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_errors_are_coloured_in_a_terminal_unless_the_environment_says_no(asked, coloured):
    mine, theirs = os.openpty()
    words = [sys.executable, "-m", "hookcli", "report", "missing"]
    subprocess.run(words, stderr=theirs, env=os.environ | asked, check=False)
    said = os.read(mine, 4096)
    os.close(theirs)
    os.close(mine)
    assert b"there is no folder 'missing'" in said
    assert (b"\x1b[" in said) == coloured


def test_hookcli_alone_prints_its_help(hookcli):
    code, out, err = hookcli()
    assert (code, out.split()[:2], err) == (0, ["Usage:", "hookcli"], "")


def test_json_is_one_document_with_the_documented_keys(hookcli, photo):
    _, out, _ = hookcli("inspect", "resnet18", photo, *SMALL, "--format", "json")
    document = json.loads(out)
    assert document["schema_version"] == 1
    assert {"command", "model", "images", "skipped", "uncalled", "findings", "layers"} < set(
        document
    )
    assert list(document["layers"][0])[:18] == [
        "order",
        "call_id",
        "module_path",
        "module_type",
        "call_index",
        "side",
        "output_key",
        "shape",
        "dtype",
        "layout",
        "mean",
        "std",
        "min",
        "max",
        "zero_fraction",
        "nan_count",
        "inf_count",
        "dead_channels",
    ]


def test_csv_on_stdout_is_the_table_in_the_folder(hookcli, photo):
    _, out, _ = hookcli("inspect", "resnet18", photo, *SMALL, "--format", "csv", "-o", "run")
    assert out == Path("run/layers.csv").read_text()
    assert [row["call_id"] for row in csv.DictReader(io.StringIO(out))] == [
        "conv1",
        "layer1.0.conv1",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "words",
    [("inspect", "resnet18", "photo.png", *SMALL), ("layers", "resnet18")],
    ids=["inspect", "layers"],
)
def test_a_table_fits_the_columns_and_has_no_colour_without_a_terminal(
    hookcli, photo, monkeypatch, words, width
):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = hookcli(*words)
    table = [line for line in out.splitlines() if not line.startswith("photo.png")]
    assert max(len(line) for line in table) <= width
    assert "\x1b" not in out


def test_quiet_leaves_only_warnings_on_stderr(hookcli, photo):
    _, _, err = hookcli("inspect", "resnet18", photo, *SMALL, "--quiet")
    assert err == "warning: the weights are RANDOM, as asked for\n"


def test_a_dry_run_prints_the_plan_and_writes_nothing(hookcli, photo):
    code, out, err = hookcli("inspect", "resnet18", photo, "--layers", "conv", "--dry-run")
    assert (code, out) == (0, "")
    assert err.startswith(
        "resnet18: 20 layers, 1 image, a grid a layer, sketches, about 27 files, up to about "
    )
    assert sorted(file.name for file in Path().iterdir()) == ["photo.png"]


def test_the_plan_counts_the_files_that_are_written(hookcli, photo):
    words = ("--weights", "random", "--size", "64", "--layers", "conv", "-o", "run")
    _, _, err = hookcli("inspect", "resnet18", photo, *words)
    written = [file for file in Path("run").rglob("*") if file.is_file()]
    assert f", about {len(written)} files, up to" in err
    assert f"wrote {len(written)} files into run" in err


def test_the_same_command_writes_the_same_bytes(hookcli, photo):
    for folder in ("one", "two"):
        hookcli(
            "inspect", "squeezenet1_1", photo, "--weights", "random", "--size", "64", "-o", folder
        )
    one, two = (
        {
            str(file.relative_to(folder)): file.read_bytes()
            for file in Path(folder).rglob("*.*")
            if file.is_file()
        }
        for folder in ("one", "two")
    )
    assert len(one) == 33
    assert one == two


@pytest.mark.parametrize(
    "name",
    [b"a b'c\"d.png", b"[red]x.png", b"new\nline.png", b"\xe2\x80\xaertl.png", b"\xff\xfe.png", b"=1+1.png",
     b"\x1b[31m.png", b"x" * 251 + b".png"],
)  # fmt: skip
def test_a_hostile_image_name_is_harmless(hookcli, photo, name):
    Path(photo).rename(os.fsdecode(name))
    code, out, err = hookcli("inspect", "resnet18", os.fsdecode(name), *SMALL, "--format", "json")
    assert code == 0
    assert json.loads(out)["images"][0]["width"] == 256
    assert "\x1b" not in err


def test_model_names_are_left_for_completion(hookcli, photo):
    hookcli("models", "resnet18")
    names = Path(os.environ["XDG_CACHE_HOME"], "hookcli/models.txt").read_text().split()
    assert len(names) == 121
